"""Training-step time of memory networks on bAbI, against MemN2N-pytorch.

    python -m benchmarks.memory_network_step

Task 2, whose stories fill the memory of 50 sentences. Sukhbaatar et al. (2015): width
20, three hops, position encoding, batches of 32 questions, float32, two threads.
MemN2N-pytorch is not a package; its stand-in is
`benchmarks/systems/pytorch_memory_network.py`. It trains one model at a time.

This project runs `configs/memory_network_qa.py` with ten models of the task, as in the
paper, which are trained side by side, as one array per parameter; "one model" trains
one. Its compilation time is the column "compilation s"; PyTorch compiles nothing.
`train.py` makes glibc's malloc keep large buffers: "same malloc" gives PyTorch this
setting, "malloc as it is" removes it here.
"""

from benchmarks import harness

BATCH_SIZE = 32
MODELS = 10
ONE = {
    "config": "configs/memory_network_qa.py",
    "overrides": [
        "data.tasks=(2,)",
        f"data.batch_size={BATCH_SIZE}",
        "data.memory=50",
        "model.hops=3",
        "model.width=20",
        "model.encoding=position",
        "model.tying=adjacent",
        "optimizer.name=sgd",
        "optimizer.clip=40.0",
    ],
    "prepares": True,
    "units": BATCH_SIZE,
}
OURS = ONE | {
    "overrides": [*ONE["overrides"], f"data.repeats={MODELS}"],
    "units": BATCH_SIZE * MODELS,
}
PEER = {
    "batch_size": BATCH_SIZE,
    "hops": 3,
    "memory": 50,
    "width": 20,
    "words": 7,  # of a sentence of task 2, with the time index
    "vocab_size": 84,  # of task 2: words, nil and 50 time indices
}
SYSTEMS = [
    *harness.against("MemN2N-pytorch style", "pytorch_memory_network", OURS, PEER),
    harness.System(
        f"{harness.OURS}, one model",
        "ours",
        "generated",
        ONE | harness.TUNED | {"key": "one_model"},  # a field of the record
    ),
]


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=6, steps=20).parse_args()
    harness.report_training(
        "memory_network_step", args, SYSTEMS, rate="questions/s", goal=20.0
    )


if __name__ == "__main__":
    main()
