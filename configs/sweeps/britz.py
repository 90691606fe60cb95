"""Exploration of translators (Britz et al., 2017), one field at a time.

    python sweep.py --config=configs/luong_nmt.py:britz --workdir=sweeps/britz \
        --sweep=configs/sweeps/britz.py --workers=2

Widths and depths are smaller than in the paper, in about the same proportions. The 81
runs take one to four minutes each on one CPU core, and an hour and a half in all on two
cores, with evaluation.
"""

from sweeps.space import Sweep, choice


def get_sweep() -> Sweep:
    """Returns the sweep."""
    encoder = ("model.layers", "model.residual")
    decoder = ("model.decoder_layers", "model.residual")
    direction = ("model.bidirectional", "model.reverse_source")
    return Sweep(
        space={
            "model.embedding": choice(64, 256, 512),  # section 4.1
            "model.cell": choice("lstm", "rnn"),  # 4.2
            encoder: choice((2, "none"), (4, "none"), (4, "residual"), (4, "dense")),
            decoder: choice((2, "none"), (4, "none"), (4, "residual"), (4, "dense")),
            direction: choice((False, False), (False, True)),  # 4.4
            ("model.score", "model.score_hidden"): choice(  # 4.5
                ("multiplicative", 32),
                ("multiplicative", 128),
                ("multiplicative", 512),
                ("additive", 32),
                ("additive", 512),
                # Not in the paper: from which width on the scale 1/sqrt(A) matters.
                ("multiplicative", 8),
                ("additive", 8),
                ("scaled_multiplicative", 8),
                ("scaled_multiplicative", 32),
                ("scaled_multiplicative", 128),
                ("scaled_multiplicative", 512),
            ),
        },
        method="one_at_a_time",
        seeds=(0, 1, 2),
        split="test",
    )
