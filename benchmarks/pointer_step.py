"""How fast is a training step of the pointer network, against shirgur's PointerNet?

    python -m benchmarks.pointer_step

Tours of 10 points, 128 of them a batch; states of 256, one LSTM layer in one direction
on each side, scores as wide, embeddings of 128, Adam, float32, two threads. PointerNet
is no package: `benchmarks/systems/pytorch_pointer.py` says what stands for it. It has
no end, so that it points 10 times where this project points 11 times; it feeds its own
choices where this project feeds the true ones.

This project's is `configs/pointer_tsp.py`, whose compilation is in "compile s"; PyTorch
compiles nothing. `train.py` sets glibc's malloc to keep large buffers; the row "same
malloc" says what that brings to PyTorch, "malloc as it is" what it brings here.
"""

from benchmarks import harness

ROWS, SIZE, HIDDEN, EMBEDDING = 128, 10, 256, 128
PEER = "PointerNet style"
OUR_SPEC = {
    "config": "configs/pointer_tsp.py",
    "overrides": [
        f"data.batch_size={ROWS}",
        f"data.min_size={SIZE}",
        f"data.max_size={SIZE}",
        "data.buckets=1",
        f"model.hidden={HIDDEN}",
        f"model.score_hidden={HIDDEN}",
        f"model.embedding={EMBEDDING}",
    ],
    "units": 1,
}
PEER_SPEC = {
    "rows": ROWS,
    "size": SIZE,
    "hidden": HIDDEN,
    "embedding": EMBEDDING,
    "layers": 1,
    "bidirectional": False,  # an option of its
}
SYSTEMS = harness.against(PEER, "pytorch_pointer", OUR_SPEC, PEER_SPEC)


def main() -> None:
    """Measures, prints the table and writes results/bench_pointer_step.json."""
    args = harness.parser(__doc__, rounds=6, steps=15).parse_args()
    harness.report_training("pointer_step", args, SYSTEMS, rate="steps/s")


if __name__ == "__main__":
    main()
