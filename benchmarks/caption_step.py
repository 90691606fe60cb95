"""How fast is a training step of a captioner, against sgrvinod's tutorial?

    python -m benchmarks.caption_step

The decoder of Show, Attend and Tell on given maps of 14 x 14 places, 32 images a
batch, 20 words each, 5000 words in the vocabulary, states and attention of 512, Adam,
float32, two threads. The tutorial is no package: `benchmarks/systems/
pytorch_caption.py` says what stands for it. Its maps have 512 channels; this project's
have 112, which a layer that learns makes 512. Its scores have a ReLU where the paper
and this project have tanh; its gate is as wide as the map, the paper's is a number.

This project's is `configs/captioning.py:frozen`, whose compilation is in "compile s";
PyTorch compiles nothing. `train.py` sets glibc's malloc to keep large buffers; the row
"same malloc" says what that brings to PyTorch, "malloc as it is" what it brings here.
"""

from benchmarks import harness

ROWS, WORDS, VOCABULARY, WIDTH = 32, 20, 5000, 512
PEER = "tutorial style"
OUR_SPEC = {
    "config": "configs/captioning.py:frozen",
    "overrides": [
        f"data.batch_size={ROWS}",
        f"data.vocab_size={VOCABULARY}",
        f"model.channels=({WIDTH},)",
        f"model.embedding={WIDTH}",
        f"model.hidden={WIDTH}",
        f"model.score_hidden={WIDTH}",
        "model.dropout=0.5",
        "loss.coverage=1.0",
    ],
    "rows": ROWS,
    "target": WORDS,
    "vocab_size": VOCABULARY,
    "units": 1,
}
PEER_SPEC = {
    "rows": ROWS,
    "target": WORDS,
    "vocab_size": VOCABULARY,
    "side": 14,
    "depth": WIDTH,
    "embedding": WIDTH,
    "hidden": WIDTH,
    "score_hidden": WIDTH,
}
SYSTEMS = harness.against(PEER, "pytorch_caption", OUR_SPEC, PEER_SPEC, mode="captions")


def main() -> None:
    """Measures, prints the table and writes results/bench_caption_step.json."""
    args = harness.parser(__doc__, rounds=6, steps=8).parse_args()
    harness.report_training("caption_step", args, SYSTEMS, rate="steps/s")


if __name__ == "__main__":
    main()
