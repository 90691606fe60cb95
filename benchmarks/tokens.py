"""Training throughput on the default corpus, in target tokens per second.

    python -m benchmarks.tokens

The default corpus with its sentencepiece vocabulary, a Transformer of width 256, 3 + 3
layers, batches of 2048 target tokens, float32, two threads. Only real tokens count, so
padding lowers the rate. Both systems use the best segmentation of each sentence.
JoeyNMT runs its own loader, which does not sort by length, and its trainer's step; this
project compiles every batch shape before the measurement.
"""

from benchmarks import harness
from benchmarks.corpus import write_corpus
from benchmarks.environment import ROOT
from benchmarks.harness import OURS, System
from configs import transformer_nmt

GOAL = 5.0


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=5, steps=15).parse_args()
    config = transformer_nmt.get_config()
    folder = ROOT / "runs" / "bench_tokens"
    vocabulary = write_corpus(config, folder)
    model = config.model
    spec = {
        "folder": str(folder),
        "tokens": 2048,
        "layers": 3,
        "d_model": 256,
        "heads": 4,
        "d_ff": 1024,
        "vocab_size": vocabulary.size,
        "share_embeddings": model.share_embeddings,
        "dropout": model.dropout,
        "smoothing": config.loss.smoothing,
        "clip": 1.0,  # as JoeyNMT's trainer here
        "max_length": config.data.max_length,
        "learning_rate": 1e-3,
        "warmup": 200,
        "beam": 1,
        "alpha": 0.0,
        "seed": 0,
    }
    systems = [
        System(OURS, "ours", "tokens", spec | harness.TUNED),
        System(f"{OURS}, malloc as it is", "ours", "tokens", spec),
        System("JoeyNMT", "joey", "tokens", spec, peer=True),
    ]
    measured = harness.measure(systems, args)
    harness.report(
        "tokens",
        args,
        measured,
        {"target tokens/s": "rate", "ms/step": "median_ms", "padding": "padding"}
        | {"peak MB": "peak_mb"},
        ratio=harness.ratio(measured, OURS, ["JoeyNMT"]),
        goal=GOAL,
    )


if __name__ == "__main__":
    main()
