"""Neural Turing Machine (Graves et al. 2014) and LSTM, on the paper's tasks."""

from results.schema import Claim, Curves, Run, Table

TABLES = {
    "ntm_copy": Table(
        rate="chosen for the NTM",
        metrics={
            "bits at 20": "bits",
            "bits at 10": "bits_10",
            "bits at 30": "bits_30",
            "bits at 50": "bits_50",
            "bits at 120": "bits_120",
            "% wrong bits at 120": "wrong_120",
        },
        columns={"steps/s": "steps_per_second", "waiting for data": "waiting"},
        curves=False,
        digits=2,
        lower=True,
        runs=(
            Run(
                name="ntm_copy",
                config="ntm_copy",
                label="NTM, LSTM controller",
                paper="≈ 0 bits",
            ),
            Run(
                name="ntm_copy_feedforward",
                config="ntm_copy:feedforward",
                seeds=(0, 1, 2),
                label="NTM, feed-forward controller",
                paper="≈ 0 bits",
            ),
            Run(
                name="ntm_copy_lstm",
                config="ntm_copy:lstm",
                label="LSTM, 3 × 128",
                paper="≈ 0.5 bits after 1M sequences (3 × 256)",
            ),
        ),
        claims=(
            Claim(
                text="the NTM learns to copy much faster than the LSTM",
                paper="Graves et al. (2014)",
                better="ntm_copy",
                than=("ntm_copy_lstm",),
            ),
        ),
    ),
    "ntm_recall": Table(
        rate="one for all rows, chosen for the NTM",
        metrics={
            "bits at 6": "bits",
            "bits at 8": "bits_8",
            "bits at 10": "bits_10",
            "bits at 12": "bits_12",
            "bits at 15": "bits_15",
        },
        columns={"steps/s": "steps_per_second", "waiting for data": "waiting"},
        curves=False,
        digits=2,
        lower=True,
        runs=(
            Run(
                name="ntm_recall",
                config="ntm_recall",
                label="NTM, LSTM controller",
                paper="≈ 0 bits",
            ),
            Run(
                name="ntm_recall_feedforward",
                config="ntm_recall:feedforward",
                label="NTM, feed-forward controller",
                paper="≈ 0 bits",
            ),
            Run(
                name="ntm_recall_lstm",
                config="ntm_recall:lstm",
                label="LSTM, 3 × 128",
                paper="not learned after 1M sequences (3 × 256)",
            ),
        ),
        claims=(
            Claim(
                text="recall is learned best with a feed-forward controller",
                paper="Graves et al. (2014)",
                better="ntm_recall_feedforward",
                than=("ntm_recall", "ntm_recall_lstm"),
            ),
        ),
    ),
    "ntm_ngrams": Table(
        rate="chosen for the NTM",
        metrics={"bits": "bits", "bits of the optimal predictor": "optimum"},
        columns={"steps/s": "steps_per_second", "waiting for data": "waiting"},
        curves=False,
        lower=True,
        runs=(
            Run(
                name="ntm_ngrams",
                config="ntm_ngrams",
                label="NTM, LSTM controller",
                paper="between the LSTM and the optimal predictor",
            ),
            Run(
                name="ntm_ngrams_feedforward",
                config="ntm_ngrams:feedforward",
                seeds=(0, 1, 2),
                label="NTM, feed-forward controller",
                paper="between the LSTM and the optimal predictor",
            ),
            Run(
                name="ntm_ngrams_lstm",
                config="ntm_ngrams:lstm",
                label="LSTM, 3 × 128",
                paper="≈ 136 bits (3 × 128)",
            ),
        ),
        claims=(
            Claim(
                text="the NTM beats the LSTM",
                paper="Graves et al. (2014)",
                better="ntm_ngrams",
                than=("ntm_ngrams_lstm",),
            ),
        ),
    ),
    "ntm_repeat_copy": Table(
        metrics={
            "bits at 10": "bits",
            "bits at 10 x 10": "bits_10x10",
            "bits at 20 x 10": "bits_20x10",
            "bits at 10 x 20": "bits_10x20",
            "% wrong bits at 20 x 10": "wrong_20x10",
            "% wrong bits at 10 x 20": "wrong_10x20",
        },
        columns={"steps/s": "steps_per_second", "waiting for data": "waiting"},
        curves=False,
        digits=2,
        lower=True,
        runs=(
            Run(
                name="ntm_repeat_copy",
                config="ntm_repeat_copy",
                label="NTM, LSTM controller",
                paper="≈ 0 bits",
            ),
        ),
    ),
    "ntm_sort": Table(
        metrics={
            "bits at 20": "bits",
            "bits at 10": "bits_10",
            "bits at 15": "bits_15",
            "% wrong bits at 20": "wrong",
        },
        columns={"steps/s": "steps_per_second", "waiting for data": "waiting"},
        curves=False,
        digits=2,
        lower=True,
        runs=(
            Run(
                name="ntm_sort",
                config="ntm_sort",
                label="NTM, LSTM controller",
                paper="learned",
            ),
        ),
    ),
}

FIGURES = (
    Curves(
        file="docs/figures/ntm_copy_curves.png",
        title="Copying 20 vectors",
        value_title="bits per sequence",
        lines={
            "NTM, LSTM controller": "ntm_copy",
            "NTM, feed-forward controller": "ntm_copy_feedforward",
            "LSTM, 3 × 128": "ntm_copy_lstm",
        },
    ),
    Curves(
        file="docs/figures/ntm_recall_curves.png",
        title="Recalling one of 6 items",
        value_title="bits per sequence",
        lines={
            "NTM, LSTM controller": "ntm_recall",
            "NTM, feed-forward controller": "ntm_recall_feedforward",
            "LSTM, 3 × 128": "ntm_recall_lstm",
        },
    ),
    Curves(
        file="docs/figures/ntm_ngrams_curves.png",
        title="Learning 6-grams",
        value_title="bits per sequence",
        lines={
            "NTM, LSTM controller": "ntm_ngrams",
            "NTM, feed-forward controller": "ntm_ngrams_feedforward",
            "LSTM, 3 × 128": "ntm_ngrams_lstm",
        },
    ),
)
