"""How fast is a training step of the pointer network, against shirgur's PointerNet?

    python -m benchmarks.pointer_step

Tours of 10 points, 128 of them a batch; states of 256, one LSTM layer in one direction
on each side, embeddings of 128, Adam, float32, two threads. PointerNet is no package:
`benchmarks/systems/pytorch_pointer.py` says what stands for it. It has no end, so that
it points 10 times where this project points 11 times; it feeds its own choices where
this project feeds the true ones.

This project's is `configs/pointer_tsp.py`, whose compilation is in "compile s"; PyTorch
compiles nothing. `train.py` sets glibc's malloc to keep large buffers; the row "same
malloc" says what that brings to PyTorch, "malloc as it is" what it brings here.
"""

from benchmarks import harness
from benchmarks.harness import System
from benchmarks.transformer_step import OURS

ROWS, SIZE, HIDDEN, EMBEDDING = 128, 10, 256, 128
PEER = "PointerNet style"
TUNED = {"tune_memory": True}
OUR_SPEC = {
    "config": "configs/pointer_tsp.py",
    "overrides": [
        f"data.rows={ROWS}",
        f"data.smallest={SIZE}",
        f"data.largest={SIZE}",
        "data.buckets=1",
        f"model.hidden={HIDDEN}",
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
SYSTEMS = [
    System(OURS, "ours", "generated", OUR_SPEC | TUNED),
    System(f"{OURS}, malloc as it is", "ours", "generated", OUR_SPEC),
    System(PEER, "pytorch_pointer", "step", PEER_SPEC, peer=True),
    System(
        f"{PEER}, same malloc", "pytorch_pointer", "step", PEER_SPEC | TUNED, peer=True
    ),
]


def main() -> None:
    """Measures, prints the table and writes results/bench_pointer_step.json."""
    args = harness.parser(__doc__, rounds=6, steps=15).parse_args()
    measured = harness.measure(SYSTEMS, args)
    harness.report(
        "pointer_step",
        args,
        measured,
        {"ms a step": "median_ms", "steps/s": "rate", "peak MB": "peak_mb"}
        | {"compile s": "compile_s", "parameters": "parameters"},
        **harness.ratios(measured, SYSTEMS),
    )


if __name__ == "__main__":
    main()
