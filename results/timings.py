"""Tables of the benchmarks: times of this project and of other libraries."""

import re
import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from base.storage import markdown_table
from results import markdown
from results.records import OURS, Record
from results.schema import rows

_STEP = "Training step: "  # beginning of a heading
_MS, _SHARE = {"ms/step": "median_ms"}, {"share of matmul rate": "share"}
_COMPILATION, _MEMORY = {"compilation, s": "compile_s"}, {"peak memory, MB": "peak_mb"}
_SEARCH = {"ms/batch": "median_ms", "sentences/s": "rate"}
_COLUMNS = {
    "transformer": _MS | {"target tokens/s": "rate"} | _SHARE | _MEMORY,
    "corpus": {"target tokens/s": "rate"} | _MS | {"padding": "padding"} | _MEMORY,
    "search": _SEARCH | _MEMORY,
    "rollout": {"ms/rollout": "median_ms", "environment steps/s": "rate"}
    | _COMPILATION
    | _MEMORY,
    "recurrent_search": _SEARCH | _COMPILATION | _MEMORY,
    "overheads": {"time added": "overhead", "seconds": "seconds"},
    "sweep": {"seconds": "seconds"},
    "forms": {"ms/step": "median_ms", "plain / fast": "factor"},
}


class Benchmark(NamedTuple):
    """A table of a benchmark, one row per system; its title ends with the sizes."""

    title: str
    columns: dict[str, str]  # fields of the record by column title
    page: str  # name of the page in docs/ that has the table

    @property
    def heading(self) -> str:
        """The title without the sizes."""
        return self.title.partition(", ")[0]


# By name of the benchmark.
BENCHMARKS = {
    name: Benchmark(
        title,
        _COLUMNS.get(kind) or _MS | {rate: "rate"} | _SHARE | _COMPILATION | _MEMORY,
        "scaling" if kind == "overheads" else "benchmarks",
    )
    for words, title, rate, _ in rows("""
transformer_step transformer
    | Training step: Transformer, 11.7M parameters, 64 pairs of 32 + 32 tokens
decoding search
    | Beam search: the same Transformer, beam size 4, 64 sentences of 32 tokens
tokens corpus | Training on the default corpus, batches of 2048 target tokens
transformer_base transformer
    | Training step: Transformer-base, 63M parameters, 32 pairs of 64 + 64 tokens
recurrent_step step
    | Training step: recurrent models, states of 512, 64 pairs of 32 + 32 tokens
    | target tokens/s
recurrent_decoding recurrent_search
    | Beam search: the recurrent models, beam size 4, 64 sentences of 32 tokens
ntm_step step
    | Training step: NTM, LSTM of 100, memory 128 × 20, copies of 20 vectors
    | sequences/s
lstmn_step step
    | Training step: LSTMN, states of 300, 32 sentences of 48 words | steps/s
memory_network_step step
    | Training step: memory networks, width 20, 3 hops, 50 sentences | questions/s
pointer_step step
    | Training step: pointer network, states of 256, 128 sets of 10 points | steps/s
caption_step step
    | Training step: captioner, 32 maps of 14 × 14, 20 words, states of 512 | steps/s
sagan_step step | Training step: SAGAN, both networks, 16 images of 64 pixels | steps/s
ram_step step | Training step: RAM, 128 images, 6 glimpses of 8 × 8 pixels | steps/s
environment_steps rollout | Steps of environments, 640 steps of FourRooms
overheads overheads | Overheads of training the default translator
fast_forms forms | Training steps with the plain forms of attention/fast/
sweep_trials sweep | Overhead of sweep.py: eight identical runs of a small translator
""")
    for name, kind in [words.split()]
}

# Ends of names: this project without its malloc settings, another library with them.
DEFAULT_MALLOC, SAME_MALLOC = ", malloc as it is", ", same malloc"


class Comparison(NamedTuple):
    """A system of this project and the fastest other system, by name in a record.

    Both have their own malloc settings. `same_malloc` is the ratio to the fastest other
    system with the settings of this project; None if there is none.
    """

    system: str
    other: str
    ratio: float
    same_malloc: float | None

    @property
    def case(self) -> str:
        """The compared case, such as a batch size; empty if there is only one."""
        return _plain(self.system.removeprefix(OURS).removeprefix(", "))

    @property
    def library(self) -> str:
        """Name of the other system without the case."""
        return self.other.partition(", ")[0]


def comparisons(systems: Mapping[str, Mapping[str, Any]]) -> list[Comparison]:
    """Compares each system of this project in a record with the fastest other one.

    Another system whose name ends with a case, such as ", batch 1", is compared in that
    case only.
    """
    result = []
    for ours in systems:
        library, _, case = ours.partition(", ")
        if library != OURS or ours.endswith(DEFAULT_MALLOC):
            continue
        rates = {
            name: values["rate"]
            for name, values in systems.items()
            if not name.startswith(OURS)
            and case.startswith(name.removesuffix(SAME_MALLOC).partition(", ")[2])
        }
        tuned = {name for name in rates if name.endswith(SAME_MALLOC)}
        if others := rates.keys() - tuned:
            other = max(others, key=lambda name: rates[name])
            rate = systems[ours]["rate"]
            same_malloc = max((rates[name] for name in tuned), default=None)
            result.append(
                Comparison(
                    ours,
                    other,
                    round(rate / rates[other], 2),
                    same_malloc and round(rate / same_malloc, 2),
                )
            )
    return result


def _lowest(benchmarks: list[Record]) -> Iterator[tuple[Benchmark, Record, Comparison]]:
    """Yields the comparison with the lowest ratio of each benchmark that has any.

    The ratio is that with the same malloc if it was measured.
    """
    by_name = {record["name"]: record for record in benchmarks}
    for name in filter(by_name.__contains__, BENCHMARKS):
        if compared := comparisons(by_name[name]["systems"]):
            row = min(compared, key=lambda x: x.same_malloc or x.ratio)
            yield BENCHMARKS[name], by_name[name], row


def summary(benchmarks: list[Record]) -> str:
    """Returns one table of the benchmarks that compare rates with other systems.

    Each row has the lowest ratio of a benchmark, and links to its own table.
    """
    lines = []
    for benchmark, record, row in _lowest(benchmarks):
        rates = [record["systems"][x] for x in (row.system, row.other)]
        lines.append(
            [
                ", ".join(filter(None, [_link(benchmark.heading), row.case])),
                row.library,
                record["device"],
                *(x for x, field in benchmark.columns.items() if field == "rate"),
                *(markdown.number(values, "rate") for values in rates),
                f"{row.ratio:.2f}",
                markdown.decimal(row.same_malloc, 2),
            ]
        )
    titles = ["benchmark", "fastest other system", "measured on", "unit", OURS]
    titles += ["other system", "ratio", "ratio, same malloc"]
    return markdown_table(titles, lines, right_aligned=4) if lines else markdown.EMPTY


def in_words(benchmarks: list[Record]) -> str:
    """Returns the range of the ratios of training steps, with the same malloc."""
    steps = {
        f"({benchmark.heading.removeprefix(_STEP)}, against {row.library})": (
            row.same_malloc
        )
        for benchmark, _, row in _lowest(benchmarks)
        if benchmark.heading.startswith(_STEP) and row.same_malloc
    }
    if not steps:
        return markdown.EMPTY
    low, high = (f(steps, key=lambda x: steps[x]) for f in (min, max))
    return (
        "With the same cores and the same memory allocator, a training step of this "
        f"project is {steps[low]:.2f} times {low} to {steps[high]:.0f} times {high} as "
        "fast as a training step of the fastest other system that was measured; the "
        f"median of {len(steps)} models is "
        f"{statistics.median(steps.values()):.1f} times."
    )


def render(benchmarks: list[Record], page: str) -> str:
    """Returns the tables of a page of docs/, in the order of `BENCHMARKS`."""
    by_name = {record["name"]: record for record in benchmarks}
    tables = [
        table(by_name[name])
        for name, benchmark in BENCHMARKS.items()
        if name in by_name and benchmark.page == page
    ]
    return "\n\n".join(tables) or markdown.EMPTY


def table(record: Record) -> str:
    """Returns the table of a benchmark as Markdown, with its heading and facts."""
    benchmark = BENCHMARKS[record["name"]]
    fields = benchmark.columns.values()
    lines = [
        [_plain(system), *(markdown.number(values, field) for field in fields)]
        for system, values in record["systems"].items()
    ]
    facts = list(_in_words(comparisons(record["systems"])))
    if (ratio := record.get("ratio_half_sum")) is not None:
        with_two = "with perfect two-way parallelism"
        facts += [f"The sweep takes {ratio:.2f} times as long as {with_two}."]
    if (rate := record.get("product_gflop_a_second")) is not None:
        facts += [f"This CPU multiplies matrices at {rate:.0f} GFLOP/s."]
    facts += [
        f"Measured on {record['device']}, commit `{record['commit'] or 'unknown'}`."
    ]
    text = markdown_table(["system", *benchmark.columns], lines)
    sizes = benchmark.title.removeprefix(benchmark.heading).removeprefix(", ")
    command = f"`python -m benchmarks {record['name']}`"
    note = f"{sizes[0].upper()}{sizes[1:]} ({command})" if sizes else command
    return f"### {benchmark.heading}\n\n{note}\n\n{text}\n\n{' '.join(facts)}"


def _in_words(compared: list[Comparison]) -> Iterator[str]:
    """Yields sentences; those on the library of the last one have only numbers."""
    last = None
    for row in compared:
        same, kind = row.same_malloc, (row.library, bool(row.same_malloc))
        text = f"{row.case}: " if row.case else "This project is "
        text += f"{row.ratio:.3g}"
        text += f" times as fast as {row.library}" * (kind != last)
        if same:
            text += f" ({same:.3g}{' with the same malloc' * (kind != last)})"
        last = kind
        yield f"{text[0].upper()}{text[1:]}."


def _plain(name: str) -> str:
    """Returns the name of a system or a case as the pages show it."""
    name = name.replace("malloc as it is", "default malloc")
    return name.replace("Bahdanau as JoeyNMT has it", "JoeyNMT's variant of Bahdanau")


def _link(heading: str) -> str:
    """Returns a link to a heading of the page."""
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"[{heading}](#{anchor})"
