"""Beam-search time of the recurrent translators, against JoeyNMT.

    python -m benchmarks.recurrent_decoding

The models of `recurrent_step` with random weights, 64 sources of 32 tokens, beam size
4, length penalty 0.6; the end token is suppressed, so that every hypothesis has 32
tokens. Float32, two threads.
"""

from benchmarks import harness
from benchmarks.harness import TUNED, System
from benchmarks.recurrent_step import JOEY, OURS

SEARCH = {"beam": 4, "alpha": 0.6}
SYSTEMS = [
    *(
        System(name, "ours", "decode", spec | SEARCH | TUNED)
        for name, spec in OURS.items()
    ),
    *(
        System(f"{name}, malloc as it is", "ours", "decode", spec | SEARCH)
        for name, spec in OURS.items()
    ),
    *(
        System(name, "joey", "decode", spec | SEARCH, peer=True)
        for name, spec in JOEY.items()
    ),
]
GOAL = 10.0


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=5, steps=2).parse_args()
    measured = harness.measure(SYSTEMS, args)
    harness.report(
        "recurrent_decoding",
        args,
        measured,
        {"sentences/s": "rate", "ms/batch": "median_ms", "peak MB": "peak_mb"}
        | {"compilation s": "compile_s"},
        **harness.ratios(measured, SYSTEMS),
        goal=GOAL,
    )


if __name__ == "__main__":
    main()
