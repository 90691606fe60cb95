"""Training-step time of the pointer network, against shirgur's PointerNet.

    python -m benchmarks.pointer_step

Tours of 10 points, batch size 128; one unidirectional LSTM layer on each side, states
and scores of width 256, embeddings of 128, Adam, float32, two threads. PointerNet is
not a package; its stand-in is `benchmarks/systems/pytorch_pointer.py`. It has no end
token, so it points 10 times and this project 11 times. It feeds back its own choices;
this project feeds the true ones.

This project runs `configs/pointer_tsp.py`. Its compilation time is the column
"compilation s"; PyTorch compiles nothing. `train.py` makes glibc's malloc keep large
buffers: "same malloc" gives PyTorch this setting, "malloc as it is" removes it here.
"""

from benchmarks import harness

BATCH_SIZE, SIZE, HIDDEN, EMBEDDING = 128, 10, 256, 128
PEER = "PointerNet style"
OUR_SPEC = {
    "config": "configs/pointer_tsp.py",
    "overrides": [
        f"data.batch_size={BATCH_SIZE}",
        f"data.min_size={SIZE}",
        f"data.max_size={SIZE}",
        "data.buckets=1",
        f"model.hidden={HIDDEN}",
        f"model.score_hidden={HIDDEN}",
        f"model.embedding={EMBEDDING}",
        "model.encoder=recurrent",
        "model.cell=lstm",
        "model.score=additive",
        "model.glimpses=0",
        "optimizer.name=adam",
    ],
    "units": 1,
}
PEER_SPEC = {
    "batch_size": BATCH_SIZE,
    "size": SIZE,
    "hidden": HIDDEN,
    "embedding": EMBEDDING,
    "layers": 1,
    "bidirectional": False,  # one of its options
}
SYSTEMS = harness.against(PEER, "pytorch_pointer", OUR_SPEC, PEER_SPEC)


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=6, steps=15).parse_args()
    harness.report_training("pointer_step", args, SYSTEMS, rate="steps/s")


if __name__ == "__main__":
    main()
