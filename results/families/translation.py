"""Translation: models, scores and alignments, and BLEU by source length.

The papers' numbers are BLEU on newstest2014; those of the alignments are from Luong et
al. (2015), table 4, English to German.
"""

from results.schema import Claim, Figure, Run, Table

_METRICS = {
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
_LOCAL_P = (
    "model.alignment=local_p",
    "model.window=10",
    "optimizer.learning_rate=0.003",
)

# As many steps as the sinusoids take in the same minutes: 8.45 steps/s on two cores.
_POSITIONS = (
    ("sinusoidal", 3500, "27.3 BLEU (base, WMT14)"),
    ("learned", 3480, ""),  # 8.41 steps/s
    ("relative", 3280, "26.8 BLEU (base, WMT14; 26.5 without)"),  # 7.91
    ("rotary", 3330, "27.5 BLEU (base, WMT14; 27.3 without)"),  # 8.05
    ("none", 3500, ""),  # 8.47
)

TABLES = {
    "translation": Table(
        metrics=_METRICS,
        columns={"parameters": "parameters", "tokens": "tokens"},
        runs=(
            Run(
                name="transformer_nmt",
                config="transformer_nmt",
                label="Transformer, relative, Muon",
                translations="full",
            ),
            Run(
                name="transformer_nmt_adam",
                config="transformer_nmt:adam",
                paper="26.8 BLEU (base, WMT14; 26.5 without)",
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
                overrides=_LOCAL_P,
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
            ),
            Claim(
                text="local-p beats global alignment",
                paper="Luong et al. (2015), table 4",
                better="luong_nmt_local_p",
                than=("luong_nmt",),
            ),
            Claim(
                text="the Transformer beats recurrent models",
                paper="Vaswani et al. (2017)",
                better="transformer_nmt_sinusoidal_equal",
                than=("bahdanau_nmt", "luong_nmt", "luong_nmt_local_p"),
            ),
            Claim(
                text="relative positions beat sinusoids",
                paper="Shaw et al. (2018)",
                better="transformer_nmt_equal",
                than=("transformer_nmt_sinusoidal_equal",),
            ),
        ),
    ),
    "positions": Table(
        metrics=_METRICS,
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
    "alignments": Table(
        metrics=_METRICS,
        columns={
            "parameters": "parameters",
            "tokens": "tokens",
            "steps/s": "steps_per_second",
        },
        curves=False,
        runs=(
            Run(
                name="short_seq2seq_forward",
                config="seq2seq_nmt:short",
                overrides=("model.reverse_source=false",),
                seeds=(0, 1, 2),
                translations="short",
                label="no attention",
            ),
            Run(
                name="short_seq2seq",
                config="seq2seq_nmt:short",
                seeds=(0, 1, 2),
                translations="short",
                label="no attention, source reversed",
            ),
            Run(
                name="short_bahdanau",
                config="bahdanau_nmt:short",
                seeds=(0, 1, 2, 3, 4),
                translations="short",
                label="Bahdanau, additive, global",
            ),
            Run(
                name="short_bahdanau_dot",
                config="bahdanau_nmt:short",
                overrides=("model.score=dot",),
                seeds=(0, 1, 2, 3, 4),
                translations="short",
                label="Bahdanau, dot, global",
            ),
            Run(
                name="short_bahdanau_general",
                config="bahdanau_nmt:short",
                overrides=("model.score=general",),
                seeds=(0, 1, 2),
                translations="short",
                label="Bahdanau, general, global",
            ),
            Run(
                name="short_bahdanau_no_score_gradient",
                config="bahdanau_nmt:short",
                overrides=("model.score_gradient=false",),
                seeds=(0, 1, 2),
                translations="short",
                label="Bahdanau, additive, scores without gradient to the encoder",
            ),
            Run(
                name="short_luong_dot_global",
                config="luong_nmt:short",
                overrides=("model.score=dot", "model.alignment=global"),
                seeds=(0, 1, 2, 3, 4),
                translations="short",
                label="Luong, dot, global",
                paper="18.6 (WMT14)",
            ),
            Run(
                name="short_luong_general_global",
                config="luong_nmt:short",
                overrides=("model.score=general", "model.alignment=global"),
                seeds=(0, 1, 2, 3, 4),
                translations="short",
                label="Luong, general, global",
                paper="17.3 (WMT14)",
            ),
            Run(
                name="short_luong_concat_global",
                config="luong_nmt:short",
                overrides=("model.score=concat", "model.alignment=global"),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, concat, global",
            ),
            Run(
                name="short_luong_location_global",
                config="luong_nmt:short",
                overrides=("model.score=location", "model.alignment=global"),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, location, global",
                paper="18.1 (WMT14)",
            ),
            Run(
                name="short_luong_dot_local_m",
                config="luong_nmt:short",
                overrides=("model.score=dot", "model.alignment=local_m"),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, dot, local-m",
            ),
            Run(
                name="short_luong_general_local_m",
                config="luong_nmt:short",
                overrides=("model.score=general", "model.alignment=local_m"),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, general, local-m",
                paper="18.6 (WMT14)",
            ),
            Run(
                name="short_luong_concat_local_m",
                config="luong_nmt:short",
                overrides=("model.score=concat", "model.alignment=local_m"),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, concat, local-m",
            ),
            Run(
                name="short_luong_location_local_m",
                config="luong_nmt:short",
                overrides=("model.score=location", "model.alignment=local_m"),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, location, local-m",
            ),
            Run(
                name="short_luong_dot_local_p",
                config="luong_nmt:short",
                overrides=("model.score=dot", *_LOCAL_P),
                seeds=(0, 1, 2, 3, 4),
                translations="short",
                label="Luong, dot, local-p, D = 10",
                paper="18.0 (WMT14)",
            ),
            Run(
                name="short_luong_general_local_p",
                config="luong_nmt:short",
                overrides=("model.score=general", *_LOCAL_P),
                seeds=(0, 1, 2, 3, 4),
                translations="short",
                label="Luong, general, local-p, D = 10",
                paper="19.0 (WMT14)",
            ),
            Run(
                name="short_luong_concat_local_p",
                config="luong_nmt:short",
                overrides=("model.score=concat", *_LOCAL_P),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, concat, local-p, D = 10",
            ),
            Run(
                name="short_luong_location_local_p",
                config="luong_nmt:short",
                overrides=("model.score=location", *_LOCAL_P),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, location, local-p, D = 10",
            ),
            Run(
                name="short_luong_bidirectional",
                config="luong_nmt:short",
                overrides=("model.bidirectional=true",),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, general, global, bidirectional encoder",
            ),
            Run(
                name="short_luong_narrow_local_p",
                config="luong_nmt:short",
                overrides=("model.alignment=local_p",),
                translations="short",
                label="Luong, general, local-p, D = 3",
            ),
            Run(
                name="short_luong_general_hard",
                config="luong_nmt:short",
                overrides=("model.score=general", "model.alignment=hard"),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, general, hard",
            ),
            Run(
                name="short_luong_general_gumbel",
                config="luong_nmt:short",
                overrides=("model.score=general", "model.alignment=gumbel"),
                seeds=(0, 1, 2),
                translations="short",
                label="Luong, general, Gumbel straight-through",
            ),
            Run(
                name="short_transformer",
                config="transformer_nmt:short",
                overrides=("model.positions=sinusoidal",),
                seeds=(0, 1, 2),
                translations="short",
                label="Transformer, sinusoids",
            ),
            Run(
                name="short_transformer_relative",
                config="transformer_nmt:short",
                seeds=(0, 1, 2),
                translations="short",
                label="Transformer, relative",
            ),
        ),
        claims=(
            Claim(
                text="attention beats one fixed vector",
                paper="Bahdanau et al. (2015)",
                better="short_bahdanau",
                than=("short_seq2seq", "short_seq2seq_forward"),
            ),
            Claim(
                text="reversing the source helps without attention",
                paper="Sutskever et al. (2014)",
                better="short_seq2seq",
                than=("short_seq2seq_forward",),
            ),
            Claim(
                text="local-p with general scores is best",
                paper="Luong et al. (2015), table 4",
                better="short_luong_general_local_p",
                than=(
                    "short_luong_dot_global",
                    "short_luong_general_global",
                    "short_luong_concat_global",
                    "short_luong_location_global",
                    "short_luong_dot_local_m",
                    "short_luong_general_local_m",
                    "short_luong_concat_local_m",
                    "short_luong_location_local_m",
                    "short_luong_dot_local_p",
                    "short_luong_concat_local_p",
                    "short_luong_location_local_p",
                ),
            ),
            Claim(
                text="dot beats general with global alignment",
                paper="Luong et al. (2015), table 4",
                better="short_luong_dot_global",
                than=("short_luong_general_global",),
            ),
            Claim(
                text="general beats dot with local-p",
                paper="Luong et al. (2015), table 4",
                better="short_luong_general_local_p",
                than=("short_luong_dot_local_p",),
            ),
            Claim(
                text="additive scores beat multiplicative scores",
                paper="Britz et al. (2017)",
                better="short_bahdanau",
                than=("short_bahdanau_dot", "short_bahdanau_general"),
            ),
            Claim(
                text="the encoder needs the gradient of the scores",
                paper="no paper: asked here",
                better="short_bahdanau",
                than=("short_bahdanau_no_score_gradient",),
            ),
            Claim(
                text="hard alignment beats soft alignment",
                paper="Xu et al. (2015), on captions",
                better="short_luong_general_hard",
                than=("short_luong_general_global",),
            ),
            Claim(
                text="the Transformer beats recurrent models",
                paper="Vaswani et al. (2017)",
                better="short_transformer",
                than=(
                    "short_bahdanau",
                    "short_bahdanau_dot",
                    "short_bahdanau_general",
                    "short_luong_bidirectional",
                    "short_luong_dot_global",
                    "short_luong_general_global",
                    "short_luong_concat_global",
                    "short_luong_location_global",
                    "short_luong_dot_local_m",
                    "short_luong_general_local_m",
                    "short_luong_concat_local_m",
                    "short_luong_location_local_m",
                    "short_luong_dot_local_p",
                    "short_luong_general_local_p",
                    "short_luong_concat_local_p",
                    "short_luong_location_local_p",
                ),
            ),
            Claim(
                text="relative positions beat sinusoids",
                paper="Shaw et al. (2018)",
                better="short_transformer_relative",
                than=("short_transformer",),
            ),
        ),
    ),
    "reversal": Table(
        metrics={"% words correct": "word_accuracy"},
        columns={"steps/s": "steps_per_second"},
        curves=False,
        runs=(
            Run(
                name="reversal_seq2seq",
                config="seq2seq_nmt:reversal",
                label="no attention",
                paper="59.1 (a re-implementation)",
            ),
            Run(
                name="reversal_seq2seq_long",
                config="seq2seq_nmt:reversal",
                overrides=("train_steps=2000", "optimizer.decay_steps=2000"),
                label="no attention, twice the steps",
            ),
            Run(
                name="reversal_bahdanau",
                config="bahdanau_nmt:reversal",
                label="Bahdanau",
                paper="100 (a re-implementation)",
            ),
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
