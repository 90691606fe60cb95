"""Size, learning rate and dropout of the Transformer in a fixed time, by TPE.

    python sweep.py --config=configs/transformer_nmt.py --workdir=sweeps/transformer \
        --sweep=configs/sweeps/transformer.py --workers=2

Each size is trained for the number of steps that takes the time of 950 steps of width
192, a quarter of the default's training. The 14 runs take about five minutes each on
one CPU core, and 35 minutes in all on two cores.
"""

from sweeps.space import Sweep, choice, log_uniform, uniform

# Width, hidden width, layers of encoder and decoder, tokens per batch, steps.
_SIZES = (
    (128, 512, 3, 3, 1024, 1580),
    (192, 768, 2, 2, 1024, 1190),
    (192, 768, 3, 3, 1024, 950),
    (192, 768, 3, 3, 2048, 530),
    (192, 768, 4, 2, 1024, 925),
    (192, 768, 4, 4, 1024, 725),
    (256, 1024, 2, 2, 1024, 780),
    (256, 1024, 3, 3, 1024, 550),
)


def get_sweep() -> Sweep:
    """Returns the sweep."""
    sizes = (
        "model.d_model",
        "model.d_ff",
        "model.encoder_layers",
        "model.decoder_layers",
        "data.tokens",
    )
    # The rate rises for a tenth of the steps, and falls until the end.
    steps = ("optimizer.warmup", "optimizer.decay_steps", "train_steps", "eval_every")
    return Sweep(
        space={
            (*sizes, *steps): choice(
                *((*size, n // 10, n, n, n) for *size, n in _SIZES)
            ),
            "optimizer.learning_rate": log_uniform(0.003, 0.016),
            "model.dropout": uniform(0.0, 0.25),
        },
        method="tpe",
        metric="perplexity",
        goal="min",
        trials=14,
    )
