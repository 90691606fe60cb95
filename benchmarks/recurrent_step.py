"""How fast is a training step of the recurrent translators, against JoeyNMT?

    python -m benchmarks.recurrent_step

Embeddings of 256, states of 512, one layer on each side, vocabulary 8000 + 8000 untied,
64 x 32 source and 64 x 32 target tokens, dropout 0.2, Adam, float32, two threads;
random tokens without padding, although every system masks for it.

Bahdanau: GRUs, in both directions of the source, and the additive score. This project
has the paper's decoder, with 512 maxout units before the output layer; JoeyNMT has the
score in Luong's decoder, whose attentional vector is as wide, so that the output layers
are equal.

Luong: LSTMs, global attention by the general score, input feeding. The encoder reads in
both directions, unlike the paper's, for JoeyNMT's cannot do otherwise.

`train.py` sets glibc's malloc to keep large buffers; the rows "same malloc" say what
that brings to JoeyNMT, "malloc as it is" what it brings here. JoeyNMT compiles nothing.
"""

from benchmarks import harness
from benchmarks.harness import System

SIZES = {
    "embedding": 256,
    "hidden": 512,
    "layers": 1,
    "vocab_size": 8000,
    "share_embeddings": False,
    "dropout": 0.2,
    "smoothing": 0.0,  # neither paper has any
    "rows": 64,
    "source": 32,
    "target": 32,
}
BAHDANAU = SIZES | {"model": "bahdanau", "score_hidden": 512}
LUONG = SIZES | {"model": "luong", "bidirectional": True}
OURS = {  # by name
    "this project, Bahdanau": BAHDANAU | {"maxout": 512},
    "this project, Luong": LUONG,
}
JOEY = {"JoeyNMT, Bahdanau": BAHDANAU, "JoeyNMT, Luong": LUONG}
TUNED = {"tune_memory": True}
SYSTEMS = [
    *(System(name, "ours", "step", spec | TUNED) for name, spec in OURS.items()),
    *(
        System(f"{name}, malloc as it is", "ours", "step", spec)
        for name, spec in OURS.items()
    ),
    *(System(name, "joey", "step", spec, peer=True) for name, spec in JOEY.items()),
    *(
        System(f"{name}, same malloc", "joey", "step", spec | TUNED, peer=True)
        for name, spec in JOEY.items()
    ),
]
GOAL = 2.0


def main() -> None:
    """Measures, prints the table and writes results/bench_recurrent_step.json."""
    args = harness.parser(__doc__, rounds=6, steps=5).parse_args()
    harness.report_training("recurrent_step", args, SYSTEMS, goal=GOAL)


if __name__ == "__main__":
    main()
