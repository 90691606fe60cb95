"""The runs that the README reports, in its order, and its figures of them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple


class Run(NamedTuple):
    """A row of a table.

    Attributes:
        name: of its records and of its folder under `runs/`.
        config: "NAME" or "NAME:VARIANT" in `configs/`.
        paper: what the paper reports, and on what.
        overrides: "FIELD=VALUE" of the config.
        seeds: one training each; the row shows their mean and spread.
        label: title of the row; by default the config and the overrides.
    """

    name: str
    config: str
    paper: str
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    label: str = ""


class Claim(NamedTuple):
    """What a paper says of two rows of a table, or of one and the best of several.

    Attributes:
        text: what it says.
        paper: where.
        better: name of the run that is the better one, if the claim holds.
        than: names of the other runs.
    """

    text: str
    paper: str
    better: str
    than: tuple[str, ...]


class Table(NamedTuple):
    """A table, and what it shows, by title.

    Attributes:
        metrics: of the test split; learning curves and claims are of the first.
        runs: its rows.
        columns: fields of the records, such as {"steps/s": "steps_per_second"}.
        curves: whether a second table shows how fast the runs learn.
        claims: a table of those that it can test.
        digits: of a metric behind the point.
        lower: whether a lower value of the first metric is the better one.
    """

    metrics: dict[str, str]
    runs: tuple[Run, ...]
    columns: Mapping[str, str] = MappingProxyType({})
    curves: bool = True
    claims: tuple[Claim, ...] = ()
    digits: int = 1
    lower: bool = False


class Figure(NamedTuple):
    """A plot of BLEU by source length, a line a run, and a table of its numbers.

    Attributes:
        file: the PNG, from the root of the repository; the table has its name.
        title: one line above it.
        lines: names of runs, by label.
    """

    file: str
    title: str
    lines: dict[str, str]


class Curves(NamedTuple):
    """A plot of a validation metric by examples seen, a line a run, and its table.

    Attributes:
        file: the PNG, from the root of the repository; the table has its name.
        title: one line above it.
        value_title: what the metric is.
        lines: names of runs, by label; "NAME:METRIC" for another metric than the first.
    """

    file: str
    title: str
    value_title: str
    lines: dict[str, str]


_SEEDS = (0, 1, 2)
_GENERATED = {"steps/s": "steps_per_second", "waiting": "waiting"}  # data as it goes
_SCORES = ("dot", "general", "concat", "location")
_ALIGNMENTS = {"global": "global", "local_m": "local-m", "local_p": "local-p"}


# BLEU of newstest2014, English to German (Luong et al., table 4).
_PAPER = {
    ("location", "global"): 18.1,
    ("dot", "global"): 18.6,
    ("general", "global"): 17.3,
    ("general", "local_m"): 18.6,
    ("dot", "local_p"): 18.0,
    ("general", "local_p"): 19.0,
}


def _luong(score: str, alignment: str, title: str) -> Run:
    fields = (f"model.score={score}", f"model.alignment={alignment}")
    name, label = f"short_luong_{score}_{alignment}", f"Luong, {score}, {title}"
    paper = _PAPER.get((score, alignment))
    paper = f"{paper:.1f} (WMT14)" if paper else ""
    return Run(name, "luong_nmt:short", paper, fields, _SEEDS, label)


def _short(name: str, config: str, label: str, *overrides: str) -> Run:
    return Run(f"short_{name}", f"{config}:short", "", overrides, _SEEDS, label)


def _kernel(variant: str, label: str) -> Run:
    name, config = f"kernels_{variant or 'learned'}", "kernel_regression"
    config += f":{variant}" * bool(variant)
    return Run(name, config, "", (), tuple(range(5)), label)


def _bits(
    metrics: dict[str, str], runs: tuple[Run, ...], *claims: Claim, digits: int = 2
) -> Table:
    """A table of what sequences cost."""
    return Table(
        metrics,
        runs,
        _GENERATED,
        curves=False,
        claims=claims,
        digits=digits,
        lower=True,
    )


def _machines(task: str, papers: Sequence[str]) -> tuple[Run, ...]:
    """The machine with and without a recurrent controller, and the LSTM alone."""
    variants = {"": "NTM, LSTM controller", ":feedforward": "NTM, feed-forward"}
    variants |= {":lstm": "LSTM, 3 × 128"}
    return tuple(
        Run(
            f"ntm_{task}{variant.replace(':', '_')}",
            *(f"ntm_{task}{variant}", paper, (), _SEEDS, label),
        )
        for (variant, label), paper in zip(variants.items(), papers, strict=True)
    )


_COPY = _machines(
    "copy", ("≈ 0 bits", "≈ 0 bits", "≈ 0.5 bits after 1M sequences, 3 × 256")
)
_RECALL = _machines(
    "recall", ("≈ 0 bits", "≈ 0 bits", "not learned after 1M episodes, 3 × 256")
)
_BETWEEN = "between the LSTM's and the best predictor's"
_NGRAMS = _machines("ngrams", (_BETWEEN, _BETWEEN, "≈ 136, 3 × 128"))
# Epochs of 100,000 sequences to 100 %, of each T0 below: Raffel and Ellis (2015), as
# recalled.
_RAFFEL = {
    "": ("addition, attention", (1, 1, 3)),
    "mean": ("addition, mean", (1, 2, 17)),
    "multiply": ("multiplication, attention", (2, 15, 8)),
    "multiply_mean": ("multiplication, mean", (2, 33)),
}
_ADDING_STEPS = {50: 5000, 1000: 5000, 10_000: 3000}


def _adding(variant: str, length: int, epochs: int) -> Run:
    title, _ = _RAFFEL[variant]
    config = "ff_attention" + f":{variant}" * bool(variant)
    plural = "s" * (epochs != 1)
    steps = _ADDING_STEPS[length]
    overrides = [f"data.length={length}", f"train_steps={steps}"]
    if length == 10_000:  # where a constant rate goes on to unlearn
        overrides += ["optimizer.schedule=warmup_cosine"]
        overrides += [f"optimizer.decay_steps={steps}"]
    return Run(
        f"ff_{variant or 'add'}_{length}",
        *(
            config,
            f"{epochs} epoch{plural} (recalled)",
            tuple(overrides),
            (0,) if length == 10_000 else _SEEDS,
        ),
        f"{title}, T0 = {length:,}",
    )


# Per cent right of lengths from 50 to 10,000, by the same: as recalled, too.
_RAFFEL_VARIABLE = {"": 99.9, "mean": 77.4, "multiply": 99.4, "multiply_mean": 55.5}


def _adding_variable(variant: str, right: float) -> Run:
    title, _ = _RAFFEL[variant]
    return Run(
        f"ff_variable_{variant or 'add'}",
        "_".join(filter(None, ("ff_attention:variable", variant))),
        f"{right} %, to 10,000 (recalled)",
        (),
        _SEEDS,
        f"{title}, lengths of 50 to 1,000",
    )


_ADDING = (
    *(
        _adding(variant, length, epochs[place])
        for place, length in enumerate(_ADDING_STEPS)
        for variant, (_, epochs) in _RAFFEL.items()
        if place < len(epochs)
    ),
    *(_adding_variable(*row) for row in _RAFFEL_VARIABLE.items()),
)
_GRAVES = "Graves et al. (2014)"
_VINYALS = "Vinyals et al. (2015)"
_ORDER = "Vinyals et al. (2016), table 1"


def _pointing(
    name: str,
    config: str,
    label: str,
    paper: str,
    *overrides: str,
    seeds: tuple[int, ...] = _SEEDS,
) -> Run:
    return Run(f"pointer_{name}", f"pointer_{config}", paper, overrides, seeds, label)


# Exact after 10,000 iterations, table 1 of Order Matters: steps P (None for a network
# that sees the order), glimpses, N = 5 and 10.
_ORDER_MATTERS = {
    (None, 0): (81, 8),
    (None, 1): (90, 28),
    (0, 1): (84, 30),
    (5, 1): (94, 57),
}


def _sorting(numbers: int, steps: int | None, glimpses: int, paper: int) -> Run:
    variant = ":process" if steps is not None else ":small" if numbers == 5 else ""
    overrides = [f"model.glimpses={glimpses}"] if glimpses != 1 else []
    if steps is not None:
        overrides += [f"model.process_steps={steps}"] if steps != 5 else []
    encoder = "LSTM encoder" if steps is None else f"P = {steps}"
    plural = "s" * (glimpses != 1)
    name = f"sorting_{numbers}_{'lstm' if steps is None else steps}_{glimpses}"
    label = f"N = {numbers}, {encoder}, {glimpses} glimpse{plural}"
    config = f"sorting{variant}"
    return _pointing(name, config, label, f"{paper} %", *overrides)


_SORTING = tuple(
    _sorting(numbers, *key, paper[place])
    for place, numbers in enumerate((5, 10))
    for key, paper in _ORDER_MATTERS.items()
    if numbers == 10 or key[0] is None
)
_MIXED = " (trained on 5 to 50)"
_TOY_PAPER = "{} (a re-implementation)"
_BAHDANAU = ("short_bahdanau", "short_bahdanau_dot", "short_bahdanau_general")
_LUONGS = tuple(
    _luong(score, alignment, title)
    for alignment, title in _ALIGNMENTS.items()
    for score in _SCORES
)
_LUONG = "Luong et al. (2015), table 4"
_LOCAL_P = "short_luong_general_local_p"
_CLAIMS = (
    Claim(
        *("attention beats a fixed vector", "Bahdanau et al. (2015)"),
        *("short_bahdanau", ("short_seq2seq", "short_seq2seq_forward")),
    ),
    Claim(
        *("without attention, a reversed source helps", "Sutskever et al. (2014)"),
        *("short_seq2seq", ("short_seq2seq_forward",)),
    ),
    Claim(
        *("local-p with general scores is the best", _LUONG),
        *(_LOCAL_P, tuple(run.name for run in _LUONGS if run.name != _LOCAL_P)),
    ),
    Claim(
        *("for global alignment, dot is better than general", _LUONG),
        *("short_luong_dot_global", ("short_luong_general_global",)),
    ),
    Claim(
        *("for local-p, general is better than dot", _LUONG),
        *(_LOCAL_P, ("short_luong_dot_local_p",)),
    ),
    Claim(
        *("additive scores are ahead of multiplicative ones", "Britz et al. (2017)"),
        *(_BAHDANAU[0], _BAHDANAU[1:]),
    ),
    Claim(
        *("hard alignment is ahead of soft", "Xu et al. (2015), on captions"),
        *("short_luong_general_hard", ("short_luong_general_global",)),
    ),
    Claim(
        *("the Transformer beats recurrence", "Vaswani et al. (2017)"),
        "short_transformer",
        (*_BAHDANAU, "short_luong_bidirectional", *(run.name for run in _LUONGS)),
    ),
)

_XU = "Xu et al. (2015), table 1"
_ZHANG = "Zhang et al. (2019)"
_TWO = (0, 1)


def _captioner(name: str, variant: str, label: str, paper: str, *seeds: int) -> Run:
    config = "captioning" + f":{variant}" * bool(variant)
    return Run(f"captioning_{name}", config, paper, (), seeds or _SEEDS, label)


def _pictures(name: str, label: str, paper: str) -> Run:
    variant = f":{name}" * (name != "attention")
    return Run(f"sagan_{name}", f"sagan{variant}", paper, (), _TWO, label)


TABLES = {
    "translation": Table(
        metrics={"BLEU": "bleu", "chrF": "chrf", "perplexity": "perplexity"},
        runs=(
            Run("transformer_nmt", "transformer_nmt", "27.3 BLEU (base, WMT14)"),
            Run(
                "transformer_nmt_relative",
                "transformer_nmt:relative",
                "26.8 BLEU (base, WMT14; 26.5 without)",
            ),
            Run("luong_nmt", "luong_nmt", "17.3 BLEU (WMT14)"),
            Run(
                *("luong_nmt_local_p", "luong_nmt", "19.0 BLEU (WMT14)"),
                ("model.alignment=local_p",),
            ),
            Run("bahdanau_nmt", "bahdanau_nmt", "26.8 BLEU (English to French, WMT14)"),
            Run("seq2seq_nmt", "seq2seq_nmt", "30.6 BLEU (English to French, WMT14)"),
        ),
    ),
    "alignments": Table(
        metrics={"BLEU": "bleu", "chrF": "chrf", "perplexity": "perplexity"},
        columns={"steps/s": "steps_per_second"},
        curves=False,
        claims=_CLAIMS,
        runs=(
            _short(
                *("seq2seq_forward", "seq2seq_nmt", "no attention"),
                "model.reverse_source=false",
            ),
            _short("seq2seq", "seq2seq_nmt", "no attention, source reversed"),
            _short("bahdanau", "bahdanau_nmt", "Bahdanau, additive, global"),
            *(
                _short(
                    *(f"bahdanau_{score}", "bahdanau_nmt"),
                    *(f"Bahdanau, {score}, global", f"model.score={score}"),
                )
                for score in ("dot", "general")
            ),
            *_LUONGS,
            _short(
                *("luong_bidirectional", "luong_nmt"),
                "Luong, general, global, encoder in both directions",
                "model.bidirectional=true",
            ),
            _short(
                *("luong_wide_local_p", "luong_nmt", "Luong, general, local-p, D = 10"),
                *("model.alignment=local_p", "model.window=10"),
            ),
            _luong("general", "hard", "hard"),
            _luong("general", "gumbel", "Gumbel straight-through"),
            _short("transformer", "transformer_nmt", "Transformer"),
        ),
    ),
    "reversal": Table(
        metrics={"words right, %": "word_accuracy"},
        columns={"steps/s": "steps_per_second"},
        curves=False,
        runs=(
            Run(
                *("reversal_seq2seq", "seq2seq_nmt:reversal", _TOY_PAPER.format(59.1)),
                label="no attention",
            ),
            Run(
                *("reversal_seq2seq_long", "seq2seq_nmt:reversal", ""),
                ("train_steps=2000", "optimizer.decay_steps=2000"),
                label="no attention, twice the steps",
            ),
            Run(
                *("reversal_bahdanau", "bahdanau_nmt:reversal", _TOY_PAPER.format(100)),
                label="Bahdanau",
            ),
        ),
    ),
    "ntm_copy": _bits(
        {"bits at 20": "bits"}
        | {f"at {size}": f"bits_{size}" for size in (10, 30, 50, 120)}
        | {"% wrong bits at 120": "wrong_120"},
        _COPY,
        Claim(
            *("the machine learns to copy much faster than the LSTM", _GRAVES),
            *(_COPY[0].name, (_COPY[2].name,)),
        ),
    ),
    "ntm_recall": _bits(
        {"bits at 6": "bits"}
        | {f"at {size}": f"bits_{size}" for size in (8, 10, 12, 15)},
        _RECALL,
        Claim(
            *("with a feed-forward controller recall is learned best", _GRAVES),
            *(_RECALL[1].name, (_RECALL[0].name, _RECALL[2].name)),
        ),
    ),
    "ntm_ngrams": _bits(
        {"bits": "bits", "best predictor": "optimum"},
        _NGRAMS,
        Claim(
            *("the machine is ahead of the LSTM", _GRAVES),
            *(_NGRAMS[0].name, (_NGRAMS[2].name,)),
        ),
        digits=1,
    ),
    "pointer_sorting": Table(
        metrics={"% exact": "accuracy"}
        | {f"at {size}": f"accuracy_{size}" for size in (5, 10, 15)},
        columns=_GENERATED,
        curves=False,
        runs=(
            *_SORTING,
            _pointing(
                *("sorting_mixed", "sorting:mixed", "N = 5 to 15, 1 glimpse", ""),
                seeds=(0,),
            ),
        ),
        claims=(
            Claim(
                *("a glimpse helps to sort ten numbers", _ORDER),
                *("pointer_sorting_10_lstm_1", ("pointer_sorting_10_lstm_0",)),
            ),
            Claim(
                *("an encoder that does not see the order sorts better", _ORDER),
                *("pointer_sorting_10_5_1", ("pointer_sorting_10_lstm_1",)),
            ),
            Claim(
                *("five steps of processing are better than none", _ORDER),
                *("pointer_sorting_10_5_1", ("pointer_sorting_10_0_1",)),
            ),
        ),
    ),
    "pointer_hull": Table(
        metrics={"% exact": "accuracy", "% area": "area", "% not simple": "failure"}
        | {f"exact at {size}": f"accuracy_{size}" for size in (5, 10, 20)},
        columns=_GENERATED,
        curves=False,
        runs=(
            _pointing(
                "hull_5", "hull:small", "n = 5, pointer", f"92.0 %, 99.6{_MIXED}"
            ),
            _pointing("hull_10", "hull", "n = 10, pointer", f"87.0 %, 99.8{_MIXED}"),
            _pointing(
                *("hull_10_attention", "hull:attention", "n = 10, attention", ""),
            ),
            _pointing(
                *("hull_10_seq2seq", "hull:seq2seq", "n = 10, no attention"),
                "29.9 %, FAIL",
            ),
            _pointing("hull_50", "hull:large", "n = 50, pointer", "72.6 %, area 99.9"),
            _pointing(
                *("hull_mixed", "hull:mixed", "n = 5 to 50, pointer"),
                *("69.6 % at 50, FAIL",),
                seeds=(0,),
            ),
        ),
        claims=(
            Claim(
                *("pointing beats attention with fixed classes", f"{_VINYALS}, n = 50"),
                *("pointer_hull_10", ("pointer_hull_10_attention",)),
            ),
            Claim(
                *("attention beats the fixed vector", _VINYALS),
                *("pointer_hull_10_attention", ("pointer_hull_10_seq2seq",)),
            ),
        ),
    ),
    "pointer_tsp": Table(
        metrics={"length": "length", "optimum": "optimum", "% excess": "excess"}
        | {"% optimal": "accuracy", "% tours of a free search": "valid_free"},
        columns=_GENERATED,
        curves=False,
        digits=3,
        lower=True,
        runs=(
            _pointing("tsp_5", "tsp:small", "n = 5, pointer", "2.12 (optimum 2.12)"),
            _pointing("tsp_10", "tsp", "n = 10, pointer", "2.88 (optimum 2.87)"),
        ),
    ),
    "ntm_repeat_copy": _bits(
        {"bits at 10": "bits"}
        | {f"at {a} x {b}": f"bits_{a}x{b}" for a, b in ((10, 10), (20, 10), (10, 20))}
        | {
            f"% wrong bits at {a} x {b}": f"wrong_{a}x{b}"
            for a, b in ((20, 10), (10, 20))
        },
        (_machines("repeat_copy", ("≈ 0 bits", "", ""))[0]._replace(seeds=(0,)),),
    ),
    "ntm_sort": _bits(
        {"bits at 20": "bits", "at 10": "bits_10", "at 15": "bits_15"}
        | {"% wrong bits at 20": "wrong"},
        (_machines("sort", ("learned", "", ""))[0]._replace(seeds=(0,)),),
    ),
    "pointer_delaunay": Table(
        metrics={"% exact": "accuracy", "% of the triangles": "coverage"},
        columns=_GENERATED,
        curves=False,
        runs=(
            _pointing(
                *("delaunay_5", "delaunay", "n = 5, pointer", "80.7 %, 93.0 %"),
                seeds=(0,),
            ),
        ),
    ),
    "ff_attention": Table(
        metrics={"% right": "accuracy"},
        columns={"sequences to 100 %": "perfect_after"} | _GENERATED,
        curves=False,
        runs=_ADDING,
    ),
    "captioning": Table(
        metrics={"BLEU-4": "bleu_4", "BLEU-1": "bleu_1", "chrF": "chrf"}
        | {"% objects": "objects", "% exact": "exact", "% pointing": "pointing"}
        | {"% chance": "chance", "% objects, new drawings": "objects_novel"},
        columns={"steps/s": "steps_per_second"},
        curves=False,
        runs=(
            _captioner("soft", "", "soft attention", "24.3 BLEU-4 (MS-COCO)"),
            _captioner("hard", "hard", "hard attention", "25.0 BLEU-4 (MS-COCO)"),
            _captioner("none", "none", "no attention", ""),
            Run(
                *("captioning_coverage", "captioning", "24.3 BLEU-4 (MS-COCO)"),
                *(
                    ("loss.coverage=1.0",),
                    (0,),
                    "soft attention, coverage penalty of 1",
                ),
            ),
            _captioner(
                *("frozen", "frozen", "soft attention, frozen encoder"),
                *("24.3 BLEU-4 (MS-COCO)", 0),
            ),
        ),
        claims=(
            Claim(
                *("attention beats one vector of the picture", "Xu et al. (2015)"),
                *("captioning_soft", ("captioning_none",)),
            ),
            Claim(
                *("hard attention is ahead of soft", _XU),
                *("captioning_hard", ("captioning_soft",)),
            ),
        ),
    ),
    "sagan": Table(
        metrics={"Frechet distance": "frechet", "of real pictures": "frechet_real"}
        | {"score": "score", "gamma, generator": "gamma_generator_16"}
        | {"gamma, discriminator": "gamma_discriminator_16"},
        columns={"steps/s": "steps_per_second"},
        curves=False,
        lower=True,
        digits=2,
        runs=(
            _pictures("attention", "SAGAN", "FID 18.28 (ImageNet, 128 px)"),
            _pictures(
                *("no_attention", "the same without attention"),
                "FID 22.96 (ImageNet, 128 px)",
            ),
            _pictures("dcgan", "DCGAN", ""),
        ),
        claims=(
            Claim(
                *("attention makes better pictures", f"{_ZHANG}, table 1"),
                *("sagan_attention", ("sagan_no_attention",)),
            ),
        ),
    ),
    "corners": Table(
        metrics={"% consistent": "consistent", "spread": "spread"}
        | {"gamma, generator": "gamma_generator_16"}
        | {"gamma, discriminator": "gamma_discriminator_8"},
        columns={"steps/s": "steps_per_second"},
        curves=False,
        digits=2,
        runs=(
            _pictures("corners", "with attention", ""),
            _pictures("corners_no_attention", "without attention", ""),
        ),
        claims=(
            Claim(
                *("attention models what is far apart", _ZHANG),
                *("sagan_corners", ("sagan_corners_no_attention",)),
            ),
        ),
    ),
    "kernels": Table(
        metrics={"mse": "mse", "width": "width"},
        curves=False,
        digits=2,
        runs=(
            _kernel("average", "average of all points"),
            _kernel("boxcar", "boxcar, width 1"),
            _kernel("triangular", "triangular, width 1"),
            _kernel("epanechnikov", "Epanechnikov, width 1"),
            _kernel("gaussian", "Gaussian, width 0.5"),
            _kernel("", "Gaussian, learned width"),
            _kernel("no_leave_one_out", "Gaussian, learned width, no leave-one-out"),
        ),
    ),
}

FIGURES: tuple[Figure | Curves, ...] = (
    *(
        Curves(
            f"docs/{name}_curves.png",
            title,
            "bits a sequence",
            {run.label: run.name for run in runs},
        )
        for name, title, runs in (
            ("ntm_copy", "Copying 20 vectors", _COPY),
            ("ntm_recall", "Recalling one of 6 items", _RECALL),
            ("ntm_ngrams", "Learning 6-grams", _NGRAMS),
        )
    ),
    *(
        Curves(
            f"docs/{name}_gammas.png",
            f"How much of its attention a network uses: {label}",
            "gamma",
            {
                "generator": f"{run}:gamma_generator_16",
                "discriminator": f"{run}:gamma_discriminator_{size}",
            },
        )
        for name, label, run, size in (
            ("sagan", "drawings", "sagan_attention", 16),
            ("corners", "corners", "sagan_corners", 8),
        )
    ),
    Figure(
        "docs/bleu_by_length.png",
        "BLEU by source length, with and without attention",
        {
            "no attention": "seq2seq_nmt",
            "Bahdanau": "bahdanau_nmt",
            "Luong": "luong_nmt",
            "Transformer": "transformer_nmt",
            "Transformer, relative": "transformer_nmt_relative",
        },
    ),
)
