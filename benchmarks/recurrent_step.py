"""Training-step time of the recurrent translators, against JoeyNMT.

    python -m benchmarks.recurrent_step

Embeddings of 256, states of 512, one layer on each side, vocabulary 8000 + 8000 untied,
batch size 64, 32 source and 32 target tokens, dropout 0.2, Adam, float32, two threads.
Tokens are random, without padding, but every system masks padding.

JoeyNMT has one recurrent model, Luong's decoder with input feeding; its "bahdanau" is
the additive score and, here, GRUs. Its encoder is always bidirectional, unlike Luong's.
This project has

*   Bahdanau et al. as published, with l = n / 2 maxout units;
*   "Bahdanau as JoeyNMT has it", JoeyNMT's model: Luong's decoder with the additive
    score and GRUs;
*   Luong et al.: LSTMs, the general score, and a bidirectional encoder as in JoeyNMT.
    The layer that combines the last states of both directions takes h and c here (17.4M
    parameters), but only h in JoeyNMT (15.8M). The difference is less than 1 % of the
    matrix products, which are counted as equal.

`train.py` makes glibc's malloc keep large buffers: "same malloc" gives JoeyNMT this
setting, "malloc as it is" removes it here. JoeyNMT compiles nothing.
"""

from benchmarks import harness
from benchmarks.harness import TUNED, System

SIZES = {
    "embedding": 256,
    "hidden": 512,
    "layers": 1,
    "vocab_size": 8000,
    "share_embeddings": False,
    "dropout": 0.2,
    "smoothing": 0.0,  # neither paper has any
    "batch_size": 64,
    "source": 32,
    "target": 32,
}
_JOEY_BAHDANAU = {"group": "bahdanau", "cell": "gru", "score_hidden": 512}
_JOEY_LUONG = {"group": "luong", "cell": "lstm", "score_hidden": 512}
_LUONG = SIZES | {"model": "luong", "bidirectional": True}
OURS = {  # specifications by name of the system
    "this project, Bahdanau": SIZES
    | _JOEY_BAHDANAU
    | {"model": "bahdanau", "score": "additive", "maxout": 256, "key": "bahdanau"},
    "this project, Bahdanau as JoeyNMT has it": _LUONG
    | _JOEY_BAHDANAU
    | {"score": "concat", "key": "same"},
    "this project, Luong": _LUONG | _JOEY_LUONG | {"score": "general", "key": "luong"},
}
JOEY = {
    "JoeyNMT, Bahdanau": SIZES | _JOEY_BAHDANAU | {"score": "concat"},
    "JoeyNMT, Luong": SIZES | _JOEY_LUONG | {"score": "general"},
}
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
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=6, steps=5).parse_args()
    harness.report_training("recurrent_step", args, SYSTEMS, goal=GOAL)


if __name__ == "__main__":
    main()
