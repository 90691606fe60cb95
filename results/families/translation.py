"""Translation: models, positions of the Transformer, and BLEU by source length.

The papers' numbers are BLEU on newstest2014.
"""

from results.schema import Chart, Table, claims, fields, runs

METRICS = fields("""
BLEU: bleu | BLEU, new: bleu_new | chrF: chrf | perplexity: perplexity
""")
# As many target tokens as the recurrent models see in 3,500 steps, 2.31 million: their
# rows have one sentence each, so that a batch has more padding.
_EQUAL = "train_steps=2314 optimizer.decay_steps=2314"
# With D = 3 and the other rows' rate of 0.01, the predicted position stays at the end
# of the source, where a forward encoder has read everything.
LOCAL_P = (
    "model.alignment=local_p",
    "model.window=10",
    "optimizer.learning_rate=0.003",
)

# As many steps as fit in the minutes of the default, at the steps/s on two cores with
# Adam, and 30 ms more per step for Muon: 8.45, 8.41, 7.91, 8.05 and 8.47 steps/s.
_POSITIONS = "\n".join(
    f"positions_{positions} transformer_nmt model.positions={positions} "
    f"train_steps={steps} optimizer.decay_steps={steps} | {positions} | {paper}"
    for positions, steps, paper in (
        ("sinusoidal", 3580, "27.3 BLEU (base, WMT14)"),
        ("learned", 3570, ""),
        ("relative", 3400, "26.8 BLEU (base, WMT14; 26.5 with sinusoids)"),
        ("rotary", 3440, "27.5 BLEU (base, WMT14; 27.3 with sinusoids)"),
        ("none", 3590, ""),
    )
)
# The two best sizes of configs/sweeps/transformer.py, for four times as many steps.
_SIZES = "\n".join(
    f"{row} train_steps={steps} optimizer.decay_steps={steps} eval_every={steps // 2}"
    f" | {label}"
    for label, steps, row in (
        (
            "width 128, 3 + 3 layers",
            5656,
            "sizes_narrow transformer_nmt model.d_model=128 model.d_ff=512 "
            "model.dropout=0.04 optimizer.learning_rate=0.0077",
        ),
        (
            "width 192, 2 + 2 layers",
            4260,
            "sizes_two_layers transformer_nmt model.encoder_layers=2 "
            "model.decoder_layers=2 model.dropout=0.1 optimizer.learning_rate=0.007",
        ),
    )
)
_RUNS = f"""
transformer_nmt transformer_nmt
transformer_nmt_adam transformer_nmt:adam
    || 26.8 BLEU (base, WMT14; 26.5 with sinusoids)
transformer_nmt_sinusoidal transformer_nmt:sinusoidal || 27.3 BLEU (base, WMT14)
transformer_nmt_equal transformer_nmt:adam {_EQUAL}
    | Transformer, relative, equal tokens
transformer_nmt_sinusoidal_equal transformer_nmt:sinusoidal {_EQUAL}
    | Transformer, sinusoids, equal tokens
luong_nmt luong_nmt || 17.3 BLEU (WMT14)
luong_nmt_local_p luong_nmt {" ".join(LOCAL_P)}
    | `luong_nmt`, local-p | 19.0 BLEU (WMT14)
bahdanau_nmt bahdanau_nmt || 26.8 BLEU (English to French, WMT14)
seq2seq_nmt seq2seq_nmt || 30.6 BLEU (English to French, WMT14)
"""
_CLAIMS = """
bahdanau_nmt > seq2seq_nmt
    | attention beats one fixed vector | Bahdanau et al. (2015)
    | the better of two for the rival, not searched for the first
luong_nmt_local_p > luong_nmt
    | local-p beats global alignment | Luong et al. (2015), table 4 | searched for both
transformer_nmt_sinusoidal_equal > bahdanau_nmt luong_nmt luong_nmt_local_p
    | the Transformer beats recurrent models | Vaswani et al. (2017)
    | searched for the first, not for the rival
transformer_nmt_equal > transformer_nmt_sinusoidal_equal
    | relative positions beat sinusoids | Shaw et al. (2018) | searched once, for both
"""

TABLES = {
    "translation": Table(
        metrics=METRICS,
        seeds=3,
        columns=fields("parameters: parameters | tokens: tokens"),
        curves=True,
        runs=runs(_RUNS),
        claims=claims(_CLAIMS),
    ),
    "positions": Table(
        metrics=METRICS,
        rate="the default's, with relative positions, for every row",
        columns=fields("parameters: parameters | tokens: tokens"),
        runs=runs(_POSITIONS),
        claims=claims("""
        positions_relative > positions_sinusoidal
            | relative positions beat sinusoids in the same minutes | Shaw et al. (2018)
        positions_rotary > positions_sinusoidal
            | rotary positions beat sinusoids in the same minutes | Su et al. (2021)
        positions_sinusoidal > positions_learned
            | sinusoids beat learned positions | Vaswani et al. (2017), table 3: equal
        positions_sinusoidal > positions_none
            | sinusoids beat none | Vaswani et al. (2017), section 3.5
        """),
    ),
    "sizes": Table(
        metrics=METRICS,
        columns=fields("parameters: parameters | tokens: tokens"),
        runs=runs(_SIZES),
    ),
}

FIGURES = (
    Chart(
        file="docs/figures/bleu_by_length.png",
        title="BLEU by source length, with and without attention",
        value_title="BLEU",
        by_length=True,
        lines={
            "no attention": "seq2seq_nmt",
            "Bahdanau": "bahdanau_nmt",
            "Luong": "luong_nmt",
            "Transformer, sinusoids": "transformer_nmt_sinusoidal_equal",
            "Transformer, relative": "transformer_nmt_equal",
        },
    ),
)
