"""Beam-search time of the Transformer, against other libraries.

    python -m benchmarks.decoding

The model of `transformer_step` with random weights, 64 sources of 32 tokens, beam size
4, length penalty 0.6; the end token is suppressed, so that every hypothesis has 32
tokens. Float32, two threads.
"""

from benchmarks import harness
from benchmarks.harness import OURS, System
from benchmarks.transformer_step import SPEC as SIZE

SPEC = SIZE | {"beam": 4, "alpha": 0.6}
SYSTEMS = [
    System(OURS, "ours", "decode", SPEC | harness.TUNED),
    System(f"{OURS}, malloc as it is", "ours", "decode", SPEC),
    System("Flax WMT style", "flax_wmt", "decode", SPEC),
    System("JoeyNMT", "joey", "decode", SPEC, peer=True),
]
GOAL = 150  # sentences per second


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=5, steps=2).parse_args()
    measured = harness.measure(SYSTEMS, args)
    peers = [s.name for s in SYSTEMS[2:]]
    harness.report(
        "decoding",
        args,
        measured,
        {"sentences/s": "rate", "ms/batch": "median_ms", "peak MB": "peak_mb"},
        ratio=harness.ratio(measured, OURS, peers),
        goal_sentences_a_second=GOAL,
    )


if __name__ == "__main__":
    main()
