"""Tables of the benchmarks: times of this project and of other libraries."""

from results import markdown
from results.records import Record
from results.schema import Benchmark

# By name of the module in `benchmarks/`.
BENCHMARKS: dict[str, Benchmark] = {
    "transformer_step": Benchmark(
        title="Training step: Transformer, 11.7M parameters, 64 × (32 + 32) tokens",
        columns={
            "ms/step": "median_ms",
            "target tokens/s": "rate",
            "share of matmul rate": "share",
            "peak memory, MB": "peak_mb",
        },
    ),
    "decoding": Benchmark(
        title="Beam search: the same Transformer, beam 4, 64 sentences to 32 tokens",
        columns={
            "ms/batch": "median_ms",
            "sentences/s": "rate",
            "peak memory, MB": "peak_mb",
        },
    ),
    "tokens": Benchmark(
        title="Training on the default corpus, batches of 2048 target tokens",
        columns={
            "target tokens/s": "rate",
            "ms/step": "median_ms",
            "padding": "padding",
            "peak memory, MB": "peak_mb",
        },
    ),
    "transformer_base": Benchmark(
        title="Training step: Transformer-base, 63M parameters, 32 × (64 + 64) tokens",
        columns={
            "ms/step": "median_ms",
            "target tokens/s": "rate",
            "share of matmul rate": "share",
            "peak memory, MB": "peak_mb",
        },
    ),
    "recurrent_step": Benchmark(
        title="Training step: recurrent models, states of 512, 64 × (32 + 32) tokens",
        columns={
            "ms/step": "median_ms",
            "target tokens/s": "rate",
            "share of matmul rate": "share",
            "compilation, s": "compile_s",
            "peak memory, MB": "peak_mb",
        },
    ),
    "recurrent_decoding": Benchmark(
        title="Beam search: the recurrent models, beam 4, 64 sentences to 32 tokens",
        columns={
            "ms/batch": "median_ms",
            "sentences/s": "rate",
            "compilation, s": "compile_s",
            "peak memory, MB": "peak_mb",
        },
    ),
    "ntm_step": Benchmark(
        title="Training step: NTM, LSTM of 100, memory 128 × 20, copies of 20 vectors",
        columns={
            "ms/step": "median_ms",
            "sequences/s": "rate",
            "share of matmul rate": "share",
            "compilation, s": "compile_s",
            "peak memory, MB": "peak_mb",
        },
    ),
    "lstmn_step": Benchmark(
        title="Training step: LSTMN, states of 300, 32 sentences of 48 words",
        columns={
            "ms/step": "median_ms",
            "steps/s": "rate",
            "share of matmul rate": "share",
            "compilation, s": "compile_s",
            "peak memory, MB": "peak_mb",
        },
    ),
    "memory_network_step": Benchmark(
        title="Training step: memory networks of width 20, 3 hops, 50 sentences",
        columns={
            "ms/step": "median_ms",
            "questions/s": "rate",
            "share of matmul rate": "share",
            "compilation, s": "compile_s",
            "peak memory, MB": "peak_mb",
        },
    ),
    "pointer_step": Benchmark(
        title="Training step: pointer network, states of 256, 128 sets of 10 points",
        columns={
            "ms/step": "median_ms",
            "steps/s": "rate",
            "share of matmul rate": "share",
            "compilation, s": "compile_s",
            "peak memory, MB": "peak_mb",
        },
    ),
    "caption_step": Benchmark(
        title="Training step: captioner, 32 maps of 14 × 14, 20 words, states of 512",
        columns={
            "ms/step": "median_ms",
            "steps/s": "rate",
            "share of matmul rate": "share",
            "compilation, s": "compile_s",
            "peak memory, MB": "peak_mb",
        },
    ),
    "sagan_step": Benchmark(
        title="Training step: SAGAN, both networks, 16 images of 64 pixels",
        columns={
            "ms/step": "median_ms",
            "steps/s": "rate",
            "share of matmul rate": "share",
            "compilation, s": "compile_s",
            "peak memory, MB": "peak_mb",
        },
    ),
    "overheads": Benchmark(
        title="Overheads of training the default translator",
        columns={"time added": "overhead", "seconds": "seconds"},
        page="scaling",
    ),
    "sweep_trials": Benchmark(
        title="Eight equal runs of a small translator by sweep.py",
        columns={"seconds": "seconds"},
    ),
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
    "ratio_half_sum": "{:.2f} times half of the sum of eight single times",
    "ratio_rows_1": "batch 1: {:.2f} times PyTorch's rate",
    "ratio_same_malloc_rows_1": "batch 1: {:.2f} times with the same malloc",
    "ratio_rows_32": "batch 32: {:.2f} times PyTorch's rate",
    "ratio_same_malloc_rows_32": "batch 32: {:.2f} times with the same malloc",
    "ratio_one_model": "one model: {:.2f} times the rate",
    "ratio_same_malloc_one_model": "one model: {:.2f} times with the same malloc",
    "product_gflop_a_second": "matrix products alone: {:.0f} GFLOP/s",
}

# Parts of the names of systems in the records, and the words of the tables for them.
LABELS: dict[str, str] = {
    "malloc as it is": "default malloc",
    "Bahdanau as JoeyNMT has it": "JoeyNMT's variant of Bahdanau",
}


def render(benchmarks: list[Record], page: str) -> str:
    """Returns the tables of a page as Markdown, in the order of `BENCHMARKS`.

    Args:
        benchmarks: the records.
        page: a value of `Benchmark.page`.
    """
    by_name = {record["name"]: record for record in benchmarks}
    return "\n\n".join(
        _render(by_name[name])
        for name, benchmark in BENCHMARKS.items()
        if name in by_name and benchmark.page == page
    )


def _label(system: str) -> str:
    """Returns the name of a recorded system as the tables show it."""
    for recorded, label in LABELS.items():
        system = system.replace(recorded, label)
    return system


def _render(record: Record) -> str:
    name = record["name"]
    benchmark = BENCHMARKS[name]
    rows = [
        [
            _label(system),
            *(markdown.number(values, f) for f in benchmark.columns.values()),
        ]
        for system, values in record["systems"].items()
    ]
    facts = [
        text.format(record[field])
        for field, text in FACTS.items()
        if record.get(field) is not None
    ]
    facts += [f"{record['device']}, commit `{record['commit'] or 'unknown'}`"]
    return (
        f"**{benchmark.title}** (`python -m benchmarks.{name}`)\n\n"
        f"{markdown.table(['system', *benchmark.columns], rows)}\n\n{'; '.join(facts)}."
    )
