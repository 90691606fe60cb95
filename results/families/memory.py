"""Neural Turing Machine (Graves et al. 2014) and LSTM, on the paper's tasks."""

from results.schema import Chart, Run, Table, claims, fields, runs

_SPEED = fields("steps/s: steps_per_second | waiting for data: waiting")
_LABELS = {
    "": "NTM, LSTM controller",
    "_feedforward": "NTM, feed-forward controller",
    "_lstm": "LSTM, 3 × 128",
}
_BETWEEN = "between the LSTM and the optimal predictor"


def _runs(task: str, *papers: str, seeds: tuple[int, ...] = (0,)) -> tuple[Run, ...]:
    """The three models on a task; `seeds` are those of the feed-forward controller."""
    return tuple(
        Run(
            name=f"ntm_{task}{model}",
            config=f"ntm_{task}{model.replace('_', ':')}",
            label=label,
            paper=paper,
            seeds=seeds if model == "_feedforward" else (0,),
        )
        for (model, label), paper in zip(_LABELS.items(), papers, strict=True)
    )


TABLES = {
    "ntm_copy": Table(
        rate="chosen for the NTM",
        metrics=fields("""
        bits at 20: bits | bits at 10: bits_10 | bits at 30: bits_30
        bits at 50: bits_50 | bits at 120: bits_120 | % wrong bits at 120: wrong_120
        """),
        columns=_SPEED,
        digits=2,
        lower=True,
        runs=_runs(
            "copy",
            "≈ 0 bits",
            "≈ 0 bits",
            "≈ 0.5 bits after 1M sequences (3 × 256)",
            seeds=(0, 1, 2),
        ),
        claims=claims("""
        ntm_copy > ntm_copy_lstm
            | the NTM learns to copy much faster than the LSTM | Graves et al. (2014)
        """),
    ),
    "ntm_recall": Table(
        rate="one for all rows, chosen for the NTM",
        metrics={"bits at 6": "bits"}
        | {f"bits at {count}": f"bits_{count}" for count in (8, 10, 12, 15)},
        columns=_SPEED,
        digits=2,
        lower=True,
        runs=_runs(
            "recall",
            "≈ 0 bits",
            "≈ 0 bits",
            "not learned after 1M sequences (3 × 256)",
        ),
        claims=claims("""
        ntm_recall_feedforward > ntm_recall ntm_recall_lstm
            | recall is learned best with a feed-forward controller
            | Graves et al. (2014)
        """),
    ),
    "ntm_ngrams": Table(
        rate="chosen for the NTM",
        metrics=fields("bits: bits | bits of the optimal predictor: optimum"),
        columns=_SPEED,
        lower=True,
        runs=_runs(
            "ngrams", _BETWEEN, _BETWEEN, "≈ 136 bits (3 × 128)", seeds=(0, 1, 2)
        ),
        claims=claims("""
        ntm_ngrams > ntm_ngrams_lstm | the NTM beats the LSTM | Graves et al. (2014)
        """),
    ),
    "ntm_repeat_copy": Table(
        metrics=fields("""
        bits at 10: bits | bits at 10 x 10: bits_10x10 | bits at 20 x 10: bits_20x10
        bits at 10 x 20: bits_10x20 | % wrong bits at 20 x 10: wrong_20x10
        % wrong bits at 10 x 20: wrong_10x20
        """),
        columns=_SPEED,
        digits=2,
        lower=True,
        runs=runs("""
        ntm_repeat_copy ntm_repeat_copy | NTM, LSTM controller | ≈ 0 bits
        """),
    ),
    "ntm_sort": Table(
        metrics=fields("""
        bits at 20: bits | bits at 10: bits_10 | bits at 15: bits_15
        % wrong bits at 20: wrong
        """),
        columns=_SPEED,
        digits=2,
        lower=True,
        runs=runs("""
        ntm_sort ntm_sort | NTM, LSTM controller | learned
        """),
    ),
}

FIGURES = tuple(
    Chart(
        file=f"docs/figures/ntm_{task}_curves.png",
        title=title,
        value_title="bits per sequence",
        lines={label: f"ntm_{task}{model}" for model, label in _LABELS.items()},
    )
    for task, title in (
        ("copy", "Copying 20 vectors"),
        ("recall", "Recalling one of 6 items"),
        ("ngrams", "Learning 6-grams"),
    )
)
