"""How fast is a training step of the Neural Turing Machine, against pytorch-ntm?

    python -m benchmarks.ntm_step

The copy task: 20 vectors of 8 bits, the delimiter, 20 steps without input. A controller
of one LSTM of 100, a memory of 128 x 20, one read and one write head with three shifts,
RMSprop, float32, two threads; batches of 1, which is what pytorch-ntm trains with, and
of 32. It is no package: `benchmarks/systems/pytorch_ntm.py` says what stands for it.

This project's is `configs/ntm_copy.py` (Adam; a batch of 32 is shared by two devices, a
core each), whose compilation is in "compile s"; PyTorch compiles nothing. `train.py`
sets glibc's malloc to keep large buffers; the rows "same malloc" say what that brings
to PyTorch, "malloc as it is" what it brings here.
"""

from benchmarks import harness

LENGTH, ROWS = 20, (1, 32)
PEER = "pytorch-ntm style"


def our_spec(rows: int) -> dict:
    """What is measured here, in batches of `rows` sequences."""
    return {
        "config": "configs/ntm_copy.py",
        "overrides": [
            f"data.batch_size={rows}",
            f"data.min_size={LENGTH}",
            f"data.max_size={LENGTH}",
            "data.buckets=1",
            *(["parallel=jit"] if rows == 1 else []),  # no rows to share
        ],
        "units": rows,
        "group": f"batch {rows}",
        "key": f"rows_{rows}",
    }


def peer_spec(rows: int) -> dict:
    """The same for the other one."""
    sizes = {"length": LENGTH, "bits": 8, "controller": 100, "slots": 128, "width": 20}
    return sizes | {"rows": rows, "group": f"batch {rows}"}


SYSTEMS = [
    system
    for rows in ROWS
    for system in harness.against(
        *(PEER, "pytorch_ntm", our_spec(rows), peer_spec(rows)),
        suffix=f", batch {rows}",
    )
]


def main() -> None:
    """Measures, prints the table and writes results/bench_ntm_step.json."""
    args = harness.parser(__doc__, rounds=6, steps=10).parse_args()
    harness.report_training("ntm_step", args, SYSTEMS, rate="sequences/s")


if __name__ == "__main__":
    main()
