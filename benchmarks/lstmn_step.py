"""Training-step time of the LSTMN, against a plain PyTorch loop over the tape.

    python -m benchmarks.lstmn_step

A language model with the widths of Cheng et al. (2016): embeddings of 150, one layer of
300, on 32 generated sentences of up to 48 words; Adam, float32, two threads. The other
system is `benchmarks/systems/pytorch_lstmn.py`: a list of states that is stacked at
each step, as straightforward code does; there is no published one to run.

This project runs `configs/lstmn_language.py`. Its compilation time is the column
"compilation s"; PyTorch compiles nothing. `train.py` makes glibc's malloc keep large
buffers: "same malloc" gives PyTorch this setting, "malloc as it is" removes it here.
"""

from benchmarks import harness
from tasks.language.agreement_data import max_length, vocabulary

SIZE, BATCH_SIZE, EMBEDDING, HIDDEN = 4, 32, 150, 300
OURS = {
    "config": "configs/lstmn_language.py",
    "overrides": [
        f"data.size={SIZE}",
        f"data.batch_size={BATCH_SIZE}",
        f"model.embedding={EMBEDDING}",
        f"model.hidden={HIDDEN}",
        f"model.score_hidden={HIDDEN}",
        f"model.memory={max_length('agreement', SIZE)}",
        "model.layers=1",
        "model.score=additive",
        "model.dropout=0.0",
        "optimizer.name=adam",
        "optimizer.clip=1.0",
    ],
    "units": 1,
}
PEER = {
    "length": max_length("agreement", SIZE),
    "batch_size": BATCH_SIZE,
    "vocab_size": vocabulary("agreement").size,
    "embedding": EMBEDDING,
    "hidden": HIDDEN,
}
SYSTEMS = harness.against("PyTorch loop", "pytorch_lstmn", OURS, PEER)


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=6, steps=5).parse_args()
    harness.report_training("lstmn_step", args, SYSTEMS, rate="steps/s", goal=4.0)


if __name__ == "__main__":
    main()
