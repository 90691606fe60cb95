"""Scores and alignments of translators of short sentences, and a toy task, reversal.

The papers' numbers are those of Luong et al. (2015), table 4, on newstest2014, English
to German.
"""

from results.families.translation import LOCAL_P, METRICS
from results.schema import Table, claims, fields, runs

_ALIGNMENTS = {  # label, overrides, and BLEU in the paper by score
    "global": (
        "global",
        ("model.alignment=global",),
        {
            "dot": "18.6 (WMT14)",
            "general": "17.3 (WMT14)",
            "location": "18.1 (WMT14)",
        },
    ),
    "local_m": ("local-m", ("model.alignment=local_m",), {"general": "18.6 (WMT14)"}),
    "local_p": (
        "local-p, D = 10",
        LOCAL_P,
        {"dot": "18.0 (WMT14)", "general": "19.0 (WMT14)"},
    ),
}
_LUONG = {
    f"short_luong_{score}_{alignment}": (
        f"luong_nmt:short model.score={score} {' '.join(overrides)} | "
        f"Luong, {score}, {label} | {bleu.get(score, '')}"
    )
    for alignment, (label, overrides, bleu) in _ALIGNMENTS.items()
    for score in ("dot", "general", "concat", "location")
}
_GRID = "\n".join(f"{name} {row}" for name, row in _LUONG.items())
_BEST = "short_luong_general_local_p"
_BAHDANAU = "short_bahdanau short_bahdanau_dot short_bahdanau_general"

_RUNS = f"""
short_seq2seq_forward seq2seq_nmt:short model.reverse_source=false | no attention
short_seq2seq seq2seq_nmt:short | no attention, source reversed
short_bahdanau bahdanau_nmt:short | Bahdanau, additive, global
short_bahdanau_dot bahdanau_nmt:short model.score=dot | Bahdanau, dot, global
short_bahdanau_general bahdanau_nmt:short model.score=general
    | Bahdanau, general, global
short_bahdanau_no_score_gradient bahdanau_nmt:short model.score_gradient=false
    | Bahdanau, additive, scores without gradient to the encoder
{_GRID}
short_luong_bidirectional luong_nmt:short model.bidirectional=true
    | Luong, general, global, bidirectional encoder
short_luong_narrow_local_p luong_nmt:short model.alignment=local_p
    | Luong, general, local-p, D = 3
short_luong_general_hard luong_nmt:short model.score=general model.alignment=hard
    | Luong, general, hard
short_luong_general_gumbel luong_nmt:short model.score=general model.alignment=gumbel
    | Luong, general, Gumbel straight-through || 3
short_transformer transformer_nmt:short model.positions=sinusoidal
    | Transformer, sinusoids
short_transformer_relative transformer_nmt:short | Transformer, relative
"""
_CLAIMS = f"""
short_bahdanau > short_seq2seq short_seq2seq_forward
    | attention beats one fixed vector | Bahdanau et al. (2015)
short_seq2seq > short_seq2seq_forward
    | reversing the source helps without attention | Sutskever et al. (2014)
{_BEST} > {" ".join(x for x in _LUONG if x != _BEST)}
    | local-p with general scores is best | Luong et al. (2015), table 4
short_luong_dot_global > short_luong_general_global
    | dot beats general with global alignment | Luong et al. (2015), table 4
short_luong_general_local_p > short_luong_dot_local_p
    | general beats dot with local-p | Luong et al. (2015), table 4
short_bahdanau > short_bahdanau_dot short_bahdanau_general
    | additive scores beat multiplicative scores | Britz et al. (2017)
short_bahdanau > short_bahdanau_no_score_gradient
    | the encoder needs the gradient of the scores | no paper: asked here
short_luong_general_hard > short_luong_general_global
    | hard alignment beats soft alignment | Xu et al. (2015), on captions
short_transformer > {_BAHDANAU} short_luong_bidirectional {" ".join(_LUONG)}
    | the Transformer beats recurrent models | Vaswani et al. (2017)
short_transformer_relative > short_transformer
    | relative positions beat sinusoids | Shaw et al. (2018)
"""
_REVERSAL = """
reversal_seq2seq seq2seq_nmt:reversal | no attention | 59.1 (a re-implementation)
reversal_seq2seq_long seq2seq_nmt:reversal train_steps=2000 optimizer.decay_steps=2000
    | no attention, twice the steps
reversal_bahdanau bahdanau_nmt:reversal | Bahdanau | 100 (a re-implementation)
"""

TABLES = {
    "alignments": Table(
        metrics=METRICS,
        rate="the best of three for its kind of model",
        columns=fields("""
        parameters: parameters | tokens: tokens | steps/s: steps_per_second
        """),
        runs=runs(_RUNS),
        claims=claims(_CLAIMS),
    ),
    "reversal": Table(
        metrics=fields("% words correct: word_accuracy"),
        columns=fields("steps/s: steps_per_second"),
        runs=runs(_REVERSAL),
    ),
}
