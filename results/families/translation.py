"""Translation: models, positions of the Transformer, and BLEU by source length.

The papers' numbers are BLEU on newstest2014.
"""

from results.schema import Claim, Figure, Run, Table

METRICS = {
    "BLEU": "bleu",
    "BLEU, new": "bleu_new",
    "chrF": "chrf",
    "perplexity": "perplexity",
}
# As many target tokens as the recurrent models see in 3,500 steps, 2.31 million: their
# rows have one sentence each, so that a batch has more padding.
_EQUAL = ("train_steps=2314", "optimizer.decay_steps=2314")
# With D = 3 and the other rows' rate of 0.01, the predicted position stays at the end
# of the source, where a forward encoder has read everything.
LOCAL_P = (
    "model.alignment=local_p",
    "model.window=10",
    "optimizer.learning_rate=0.003",
)

# As many steps as fit in the minutes of the default, at these steps/s on two cores with
# Adam, and 30 ms more per step for Muon.
_POSITIONS = (
    ("sinusoidal", 3580, "27.3 BLEU (base, WMT14)"),  # 8.45 steps/s
    ("learned", 3570, ""),  # 8.41
    ("relative", 3400, "26.8 BLEU (base, WMT14; 26.5 with sinusoids)"),  # 7.91
    ("rotary", 3440, "27.5 BLEU (base, WMT14; 27.3 with sinusoids)"),  # 8.05
    ("none", 3590, ""),  # 8.47
)

# The two best sizes of configs/sweeps/transformer.py, for four times as many steps.
_SIZES = {
    "width 128, 3 + 3 layers": (
        "sizes_narrow",
        5656,
        ("model.d_model=128", "model.d_ff=512", "model.dropout=0.04"),
        0.0077,
    ),
    "width 192, 2 + 2 layers": (
        "sizes_two_layers",
        4260,
        ("model.encoder_layers=2", "model.decoder_layers=2", "model.dropout=0.1"),
        0.007,
    ),
}

TABLES = {
    "translation": Table(
        metrics=METRICS,
        seeds=1,
        columns={"parameters": "parameters", "tokens": "tokens"},
        runs=(
            Run(
                name="transformer_nmt",
                config="transformer_nmt",
                translations="full",
            ),
            Run(
                name="transformer_nmt_adam",
                config="transformer_nmt:adam",
                paper="26.8 BLEU (base, WMT14; 26.5 with sinusoids)",
                translations="full",
            ),
            Run(
                name="transformer_nmt_sinusoidal",
                config="transformer_nmt:sinusoidal",
                paper="27.3 BLEU (base, WMT14)",
                translations="full",
            ),
            Run(
                name="transformer_nmt_equal",
                config="transformer_nmt:adam",
                overrides=_EQUAL,
                label="Transformer, relative, equal tokens",
                translations="full",
            ),
            Run(
                name="transformer_nmt_sinusoidal_equal",
                config="transformer_nmt:sinusoidal",
                overrides=_EQUAL,
                label="Transformer, sinusoids, equal tokens",
                translations="full",
            ),
            Run(
                name="luong_nmt",
                config="luong_nmt",
                paper="17.3 BLEU (WMT14)",
                translations="full",
            ),
            Run(
                name="luong_nmt_local_p",
                config="luong_nmt",
                overrides=LOCAL_P,
                label="`luong_nmt`, local-p",
                paper="19.0 BLEU (WMT14)",
                translations="full",
            ),
            Run(
                name="bahdanau_nmt",
                config="bahdanau_nmt",
                paper="26.8 BLEU (English to French, WMT14)",
                translations="full",
            ),
            Run(
                name="seq2seq_nmt",
                config="seq2seq_nmt",
                paper="30.6 BLEU (English to French, WMT14)",
                translations="full",
            ),
        ),
        claims=(
            Claim(
                text="attention beats one fixed vector",
                paper="Bahdanau et al. (2015)",
                better="bahdanau_nmt",
                than=("seq2seq_nmt",),
                rate="the better of two for the rival, not searched for the first",
            ),
            Claim(
                text="local-p beats global alignment",
                paper="Luong et al. (2015), table 4",
                better="luong_nmt_local_p",
                than=("luong_nmt",),
                rate="searched for both",
            ),
            Claim(
                text="the Transformer beats recurrent models",
                paper="Vaswani et al. (2017)",
                better="transformer_nmt_sinusoidal_equal",
                than=("bahdanau_nmt", "luong_nmt", "luong_nmt_local_p"),
                rate="searched for the first, not for the rival",
            ),
            Claim(
                text="relative positions beat sinusoids",
                paper="Shaw et al. (2018)",
                better="transformer_nmt_equal",
                than=("transformer_nmt_sinusoidal_equal",),
                rate="searched once, for both",
            ),
        ),
    ),
    "positions": Table(
        metrics=METRICS,
        rate="the default's, with relative positions, for every row",
        seeds=1,
        columns={"parameters": "parameters", "tokens": "tokens"},
        curves=False,
        runs=tuple(
            Run(
                name=f"positions_{positions}",
                config="transformer_nmt",
                overrides=(
                    f"model.positions={positions}",
                    f"train_steps={steps}",
                    f"optimizer.decay_steps={steps}",
                ),
                label=positions,
                paper=paper,
                translations="full",
            )
            for positions, steps, paper in _POSITIONS
        ),
        claims=(
            Claim(
                text="relative positions beat sinusoids in the same minutes",
                paper="Shaw et al. (2018)",
                better="positions_relative",
                than=("positions_sinusoidal",),
            ),
            Claim(
                text="rotary positions beat sinusoids in the same minutes",
                paper="Su et al. (2021)",
                better="positions_rotary",
                than=("positions_sinusoidal",),
            ),
            Claim(
                text="sinusoids beat learned positions",
                paper="Vaswani et al. (2017), table 3: equal",
                better="positions_sinusoidal",
                than=("positions_learned",),
            ),
            Claim(
                text="sinusoids beat none",
                paper="Vaswani et al. (2017), section 3.5",
                better="positions_sinusoidal",
                than=("positions_none",),
            ),
        ),
    ),
    "sizes": Table(
        metrics=METRICS,
        columns={"parameters": "parameters", "tokens": "tokens"},
        curves=False,
        runs=tuple(
            Run(
                name=name,
                config="transformer_nmt",
                overrides=(
                    *fields,
                    f"optimizer.learning_rate={rate}",
                    f"train_steps={steps}",
                    f"optimizer.decay_steps={steps}",
                    f"eval_every={steps // 2}",
                ),
                label=label,
                translations="full",
            )
            for label, (name, steps, fields, rate) in _SIZES.items()
        ),
    ),
}

FIGURES = (
    Figure(
        file="docs/figures/bleu_by_length.png",
        title="BLEU by source length, with and without attention",
        lines={
            "no attention": "seq2seq_nmt",
            "Bahdanau": "bahdanau_nmt",
            "Luong": "luong_nmt",
            "Transformer, sinusoids": "transformer_nmt_sinusoidal_equal",
            "Transformer, relative": "transformer_nmt_equal",
        },
    ),
)
