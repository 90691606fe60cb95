"""Neural Turing Machine (Graves et al. 2014) and LSTM, on the paper's tasks."""

from results.schema import Chart, Table, claims, fields, runs

_SPEED = fields("steps/s: steps_per_second | waiting for data: waiting")
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
        runs=runs("""
        ntm_copy ntm_copy | NTM, LSTM controller | ≈ 0 bits
        ntm_copy_feedforward ntm_copy:feedforward
            | NTM, feed-forward controller | ≈ 0 bits | 3
        ntm_copy_lstm ntm_copy:lstm
            | LSTM, 3 × 128 | ≈ 0.5 bits after 1M sequences (3 × 256)
        """),
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
        runs=runs("""
        ntm_recall ntm_recall | NTM, LSTM controller | ≈ 0 bits
        ntm_recall_feedforward ntm_recall:feedforward
            | NTM, feed-forward controller | ≈ 0 bits
        ntm_recall_lstm ntm_recall:lstm
            | LSTM, 3 × 128 | not learned after 1M sequences (3 × 256)
        """),
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
        runs=runs("""
        ntm_ngrams ntm_ngrams
            | NTM, LSTM controller | between the LSTM and the optimal predictor
        ntm_ngrams_feedforward ntm_ngrams:feedforward
            | NTM, feed-forward controller
            | between the LSTM and the optimal predictor | 3
        ntm_ngrams_lstm ntm_ngrams:lstm | LSTM, 3 × 128 | ≈ 136 bits (3 × 128)
        """),
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
        lines={
            "NTM, LSTM controller": f"ntm_{task}",
            "NTM, feed-forward controller": f"ntm_{task}_feedforward",
            "LSTM, 3 × 128": f"ntm_{task}_lstm",
        },
    )
    for task, title in (
        ("copy", "Copying 20 vectors"),
        ("recall", "Recalling one of 6 items"),
        ("ngrams", "Learning 6-grams"),
    )
)
