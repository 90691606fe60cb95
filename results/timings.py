"""Tables of the benchmarks: times of this project and of other libraries."""

from typing import NamedTuple

from base.storage import markdown_table
from results import markdown
from results.records import Record
from results.schema import rows

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
    """A table of a benchmark, one row per system."""

    title: str
    columns: dict[str, str]  # fields of the record by column title
    page: str  # name of the page in docs/ that has the table


# By name of the benchmark.
BENCHMARKS = {
    name: Benchmark(
        title,
        _COLUMNS.get(kind) or _MS | {rate: "rate"} | _SHARE | _COMPILATION | _MEMORY,
        "scaling" if kind == "overheads" else "benchmarks",
    )
    for words, title, rate, _ in rows("""
transformer_step transformer
    | Training step: Transformer, 11.7M parameters, 64 × (32 + 32) tokens
decoding search | Beam search: the same Transformer, beam 4, 64 sentences to 32 tokens
tokens corpus | Training on the default corpus, batches of 2048 target tokens
transformer_base transformer
    | Training step: Transformer-base, 63M parameters, 32 × (64 + 64) tokens
recurrent_step step
    | Training step: recurrent models, states of 512, 64 × (32 + 32) tokens
    | target tokens/s
recurrent_decoding recurrent_search
    | Beam search: the recurrent models, beam 4, 64 sentences to 32 tokens
ntm_step step
    | Training step: NTM, LSTM of 100, memory 128 × 20, copies of 20 vectors
    | sequences/s
lstmn_step step
    | Training step: LSTMN, states of 300, 32 sentences of 48 words | steps/s
memory_network_step step
    | Training step: memory networks of width 20, 3 hops, 50 sentences | questions/s
pointer_step step
    | Training step: pointer network, states of 256, 128 sets of 10 points | steps/s
caption_step step
    | Training step: captioner, 32 maps of 14 × 14, 20 words, states of 512 | steps/s
sagan_step step | Training step: SAGAN, both networks, 16 images of 64 pixels | steps/s
ram_step step | Training step: RAM, 128 images, 6 glimpses of 8 × 8 pixels | steps/s
environment_steps rollout | Steps of environments: 32 grids of rooms for 20 steps
overheads overheads | Overheads of training the default translator
fast_forms forms | Training steps with the plain forms of attention/fast/
sweep_trials sweep | Overhead of sweep.py: eight identical runs of a small translator
""")
    for name, kind in [words.split()]
}

# Facts listed below the table of a benchmark, by field of its record.
FACTS: dict[str, str] = {
    "ratio": "{:.2f} times the rate of the fastest other system",
    "ratio_same_malloc": "{:.2f} times when that library uses the same malloc",
    "ratio_bahdanau": "Bahdanau: {:.2f} times JoeyNMT's rate",
    "ratio_same_malloc_bahdanau": "Bahdanau: {:.2f} times with the same malloc",
    "ratio_same": "JoeyNMT's variant of Bahdanau: {:.2f} times JoeyNMT's rate",
    "ratio_same_malloc_same": (
        "JoeyNMT's variant of Bahdanau: {:.2f} times with the same malloc"
    ),
    "ratio_luong": "Luong: {:.2f} times JoeyNMT's rate",
    "ratio_same_malloc_luong": "Luong: {:.2f} times with the same malloc",
    "ratio_half_sum": "{:.2f} times the time of perfect two-way parallelism",
    "ratio_rows_1": "batch 1: {:.2f} times PyTorch's rate",
    "ratio_same_malloc_rows_1": "batch 1: {:.2f} times with the same malloc",
    "ratio_rows_32": "batch 32: {:.2f} times PyTorch's rate",
    "ratio_same_malloc_rows_32": "batch 32: {:.2f} times with the same malloc",
    "ratio_one_model": "one model: {:.2f} times the rate",
    "ratio_same_malloc_one_model": "one model: {:.2f} times with the same malloc",
    "ratio_four_rooms": "FourRooms: {:.2f} times minigrid's rate",
    "ratio_same_malloc_four_rooms": "FourRooms: {:.2f} times with the same malloc",
    "product_gflop_a_second": "matrix products alone: {:.0f} GFLOP/s",
}


def render(benchmarks: list[Record], page: str) -> str:
    """Returns the tables of a page as Markdown, in the order of `BENCHMARKS`.

    Args:
        benchmarks: the records.
        page: a value of `Benchmark.page`.
    """
    by_name = {record["name"]: record for record in benchmarks}
    tables = [
        _render(benchmark, by_name[name])
        for name, benchmark in BENCHMARKS.items()
        if name in by_name and benchmark.page == page
    ]
    return "\n\n".join(tables) or markdown.EMPTY


def _render(benchmark: Benchmark, record: Record) -> str:
    fields = benchmark.columns.values()
    lines = [
        [
            system.replace("malloc as it is", "default malloc").replace(
                "Bahdanau as JoeyNMT has it", "JoeyNMT's variant of Bahdanau"
            ),
            *(markdown.number(values, field) for field in fields),
        ]
        for system, values in record["systems"].items()
    ]
    facts = [
        text.format(record[field])
        for field, text in FACTS.items()
        if record.get(field) is not None
    ]
    facts += [f"{record['device']}, commit `{record['commit'] or 'unknown'}`"]
    table = markdown_table(["system", *benchmark.columns], lines)
    title = f"**{benchmark.title}** (`python -m benchmarks {record['name']}`)"
    return f"{title}\n\n{table}\n\n{'; '.join(facts)}."
