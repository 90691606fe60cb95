"""Training throughput on the default corpus, in target tokens per second.

    python -m benchmarks tokens

The default corpus with its sentencepiece vocabulary, a Transformer of width 256, 3 + 3
layers, batches of 2048 target tokens, float32, two threads. Only real tokens count, so
padding lowers the rate. Both systems use the best segmentation of each sentence.
JoeyNMT runs its own loader, which does not sort by length, and its trainer's step; this
project compiles every batch shape before the measurement.
"""

from collections.abc import Sequence

from benchmarks import harness
from benchmarks.corpus import write_corpus
from configs import transformer_nmt
from results.records import ROOT


def main(arguments: Sequence[str]) -> None:
    """Measures, prints the table and writes the record."""
    parser = harness.parser(__doc__, "tokens", rounds=5, steps=15)
    args, config = parser.parse_args(arguments), transformer_nmt.get_config()
    folder = ROOT / "runs" / "bench_tokens"
    vocabulary = write_corpus(config, folder)
    spec = {"folder": str(folder), "tokens": 2048, "vocab_size": vocabulary.size}
    spec |= {"layers": 3, "d_model": 256, "heads": 4, "d_ff": 1024}
    spec |= {name: config.model[name] for name in ("share_embeddings", "dropout")}
    spec |= {"smoothing": config.loss.smoothing, "max_length": config.data.max_length}
    spec |= {"clip": 1.0}  # as JoeyNMT's trainer here
    spec |= {"learning_rate": 1e-3, "warmup": 200, "seed": 0, "beam": 1, "alpha": 0.0}
    systems = [
        *harness.mallocs(harness.OURS, "ours", "tokens", spec),
        harness.System("JoeyNMT", "joey", "tokens", spec),
    ]
    harness.report("tokens", args, harness.measure(systems, args))
