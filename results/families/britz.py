"""Britz et al. (2017), Massive exploration of neural machine translation architectures.

The rows are the trials of `configs/sweeps/britz.py`, one field at a time, and rows that
the sweep does not have: no attention, and other searches with the baseline. The paper's
numbers are BLEU on newstest2013, English to German, with widths four times as large.
"""

from results.records import ROOT
from results.schema import Chart, Table, claims, fields, runs
from sweeps import plan, space

_SWEEP = plan.read_file(str(ROOT / "configs" / "sweeps" / "britz.py"))
_BASELINE = "britz"
# Name, label and the paper's number of each trial, in the order of the sweep.
_TRIALS = (
    (_BASELINE, "baseline, additive 128", "22.47 ± 0.27 (512)"),
    ("britz_embedding_64", "embedding 64", "21.73 (256)"),
    ("britz_embedding_256", "embedding 256", "21.36 ± 0.27 (1024)"),
    ("britz_embedding_512", "embedding 512", "21.86 ± 0.17 (2048)"),
    ("britz_lstm", "LSTM", "22.22 ± 0.08"),
    ("britz_rnn", "vanilla cell", "15.38 (decoder alone)"),
    ("britz_encoder_2", "2 encoder layers", "21.85 ± 0.32 (4)"),
    ("britz_encoder_4", "4 encoder layers", "21.32 (8)"),
    ("britz_encoder_4_residual", "4 encoder layers, residual", "19.23 ± 1.96 (8)"),
    ("britz_encoder_4_dense", "4 encoder layers, dense", "17.30 ± 2.64 (8)"),
    ("britz_decoder_2", "2 decoder layers", "21.78 ± 0.05"),
    ("britz_decoder_4", "4 decoder layers", "22.37 ± 0.10"),
    ("britz_decoder_4_residual", "4 decoder layers, residual", "17.48"),
    ("britz_decoder_4_dense", "4 decoder layers, dense", "21.10"),
    ("britz_forward", "forward encoder", "20.54"),
    ("britz_reversed", "forward encoder, source reversed", "21.16"),
    ("britz_multiplicative_32", "multiplicative 32", "22.03 (128)"),
    ("britz_multiplicative_128", "multiplicative 128", "21.78 ± 0.05 (512)"),
    ("britz_multiplicative_512", "multiplicative 512", "18.22 (1024)"),
    ("britz_additive_32", "additive 32", "22.23 (128)"),
    ("britz_additive_512", "additive 512", "22.10 (1024)"),
    ("britz_multiplicative_8", "multiplicative 8", ""),
    ("britz_additive_8", "additive 8", ""),
    ("britz_scaled_8", "scaled multiplicative 8", ""),
    ("britz_scaled_32", "scaled multiplicative 32", ""),
    ("britz_scaled_128", "scaled multiplicative 128", ""),
    ("britz_scaled_512", "scaled multiplicative 512", ""),
)
_SEARCHES = "\n".join(
    f"{name} luong_nmt:britz evaluation.beam={beam} evaluation.alpha={alpha} "
    f"| {label} | {paper}"
    for name, label, beam, alpha, paper in (
        ("britz_beam_1", "beam 1", 1, 0.0, "20.66"),
        ("britz_beam_3", "beam 3", 3, 0.0, "21.55"),
        ("britz_beam_5", "beam 5", 5, 0.0, "21.60"),
        ("britz_beam_10", "beam 10", 10, 0.0, "21.57"),
        ("britz_beam_25", "beam 25", 25, 0.0, "21.47"),
        ("britz_beam_100", "beam 100", 100, 0.0, "21.10"),
        ("britz_beam_10_half", "beam 10, length penalty 0.5", 10, 0.5, "21.71"),
        ("britz_beam_100_penalty", "beam 100, length penalty 1", 100, 1.0, ""),
    )
)
_SEEDS = len(_SWEEP.seeds)
_TRAININGS = "\n".join(
    f"{name} luong_nmt:britz {' '.join(space.overrides(point))} "
    f"| {label} | {paper} | {_SEEDS}"
    for (name, label, paper), point in zip(_TRIALS, space.points(_SWEEP), strict=True)
)
_TRAININGS += f"""
britz_none_state seq2seq_nmt:britz
    | no attention, vector as first state | 9.98 | {_SEEDS}
britz_none_input seq2seq_nmt:britz model.first_state=zero model.fed_steps=all
    | no attention, vector in every step | 11.57 | {_SEEDS}
"""
_CLAIMS = """
britz_embedding_512 > britz britz_embedding_64 britz_embedding_256
    | the widest embedding is best | Britz et al. (2017), section 4.1
britz_lstm > britz | LSTMs beat GRUs | Britz et al. (2017), section 4.2
britz > britz_rnn | gated cells beat the vanilla cell | Britz et al. (2017), section 4.2
britz_decoder_4 > britz britz_decoder_2
    | a decoder of four layers beats one of one or two
    | Britz et al. (2017), section 4.3
britz_decoder_4_dense > britz_decoder_4_residual
    | dense connections beat residual ones in a deep decoder
    | Britz et al. (2017), section 4.3
britz_encoder_4 > britz_encoder_4_residual britz_encoder_4_dense
    | deep encoders are better without residual connections
    | Britz et al. (2017), section 4.3
britz > britz_forward britz_reversed
    | bidirectional encoders beat unidirectional ones | Britz et al. (2017), section 4.4
britz_reversed > britz_forward
    | reversing the source helps a unidirectional encoder
    | Britz et al. (2017), section 4.4
britz > britz_multiplicative_128
    | additive scores beat multiplicative scores | Britz et al. (2017), section 4.5
britz_additive_512 > britz_multiplicative_512
    | additive scores beat dot products of wide keys
    | Vaswani et al. (2017), section 3.2.1
britz_scaled_512 > britz_multiplicative_512
    | the scale helps dot products of wide keys | Vaswani et al. (2017), section 3.2.1
britz > britz_none_state britz_none_input
    | attention beats one fixed vector | Britz et al. (2017), section 4.5
britz > britz_beam_1
    | a beam of 10 with a length penalty beats greedy search
    | Britz et al. (2017), section 4.6
britz > britz_beam_10
    | a length penalty helps a beam of 10 | Britz et al. (2017), section 4.6
britz_beam_10 > britz_beam_100
    | without a length penalty a beam of 100 is worse than one of 10
    | Britz et al. (2017), section 4.6
"""

TABLES = {
    "britz": Table(
        rate="the baseline's for every row",
        metrics=fields("BLEU: bleu | BLEU, new: bleu_new | perplexity: perplexity"),
        columns=fields("parameters: parameters | steps/s: steps_per_second"),
        runs=(*runs(_TRAININGS), *runs(_SEARCHES, trained=_BASELINE)),
        claims=claims(_CLAIMS),
    ),
}

FIGURES = (
    Chart(
        file="docs/figures/key_widths.png",
        title="Scores of keys of width 8, 32 and 512",
        value_title="training loss",
        loss_every=200,
        lines={
            f"{score}, {width}": _BASELINE + f"_{score}_{width}"
            for score in ("multiplicative", "scaled", "additive")
            for width in (8, 32, 512)
        },
    ),
)
