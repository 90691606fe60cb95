"""Training-step time of the Neural Turing Machine, against pytorch-ntm.

    python -m benchmarks.ntm_step

The copy task: 20 vectors of 8 bits, the delimiter, 20 steps without input. The
controller is an LSTM of width 100; the memory is 128 x 20, with one read and one write
head of three shifts; RMSprop, float32, two threads. The batch size is 1, with which
pytorch-ntm trains, or 32. pytorch-ntm is not a package; its stand-in is
`benchmarks/systems/pytorch_ntm.py`.

This project runs `configs/ntm_copy.py` (Adam; a batch of 32 is split over two devices,
one per core). Its compilation time is the column "compilation s"; PyTorch compiles
nothing. `train.py` makes glibc's malloc keep large buffers: "same malloc" gives PyTorch
this setting, "malloc as it is" removes it here.
"""

from benchmarks import harness

LENGTH, BATCH_SIZES = 20, (1, 32)
PEER = "pytorch-ntm style"


def our_spec(batch_size: int) -> dict:
    """Returns the specification of this project's system."""
    return {
        "config": "configs/ntm_copy.py",
        "overrides": [
            f"data.batch_size={batch_size}",
            f"data.min_size={LENGTH}",
            f"data.max_size={LENGTH}",
            "data.buckets=1",
            "model.controller=lstm",
            "model.hidden=100",
            "model.slots=128",
            "model.width=20",
            "model.shifts=3",
            "optimizer.name=adam",
            *(["parallel=jit"] if batch_size == 1 else []),  # nothing to split
        ],
        "units": batch_size,
        "group": f"batch {batch_size}",
        "key": f"rows_{batch_size}",  # a field of the record
    }


def peer_spec(batch_size: int) -> dict:
    """Returns the specification of the other system."""
    sizes = {"length": LENGTH, "bits": 8, "controller": 100, "slots": 128, "width": 20}
    return sizes | {"batch_size": batch_size, "group": f"batch {batch_size}"}


SYSTEMS = [
    system
    for batch_size in BATCH_SIZES
    for system in harness.against(
        PEER,
        "pytorch_ntm",
        our_spec(batch_size),
        peer_spec(batch_size),
        suffix=f", batch {batch_size}",
    )
]


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=6, steps=10).parse_args()
    harness.report_training("ntm_step", args, SYSTEMS, rate="sequences/s")


if __name__ == "__main__":
    main()
