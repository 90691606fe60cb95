"""Training-step time of a captioner, against sgrvinod's tutorial.

    python -m benchmarks.caption_step

The decoder of Show, Attend and Tell on given maps of 14 x 14 positions: batch size 32,
captions of 20 words, a vocabulary of 5000 words, states and attention of 512, Adam,
float32, two threads. The tutorial is not a package; its stand-in is
`benchmarks/systems/pytorch_caption.py`. The tutorial's maps have 512 channels; this
project's have 112, which a learned layer projects to 512. The tutorial's scores have a
ReLU and its gate is as wide as the map; in the paper and here, the scores have a tanh
and the gate is a scalar.

This project runs `configs/captioning.py:frozen`. Its compilation time is the column
"compilation s"; PyTorch compiles nothing. `train.py` makes glibc's malloc keep large
buffers: "same malloc" gives PyTorch this setting, "malloc as it is" removes it here.
"""

from benchmarks import harness

BATCH_SIZE, WORDS, VOCABULARY, WIDTH = 32, 20, 5000, 512
PEER = "tutorial style"
OUR_SPEC = {
    "config": "configs/captioning.py:frozen",
    "overrides": [
        f"data.batch_size={BATCH_SIZE}",
        f"data.vocab_size={VOCABULARY}",
        f"model.channels=({WIDTH},)",
        f"model.embedding={WIDTH}",
        f"model.hidden={WIDTH}",
        f"model.score_hidden={WIDTH}",
        "model.cell=lstm",
        "model.score=additive",
        "model.alignment=global",
        "model.dropout=0.5",
        "loss.coverage=1.0",
        "optimizer.name=adam",
        "optimizer.clip=5.0",
    ],
    "batch_size": BATCH_SIZE,
    "target": WORDS,
    "vocab_size": VOCABULARY,
    "units": 1,
}
PEER_SPEC = {
    "batch_size": BATCH_SIZE,
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
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=6, steps=8).parse_args()
    harness.report_training("caption_step", args, SYSTEMS, rate="steps/s")


if __name__ == "__main__":
    main()
