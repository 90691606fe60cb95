"""Training-step time and memory of Transformer-base, against PyTorch.

    python -m benchmarks.transformer_base

The base model of Vaswani et al. (2017), table 3: width 512, 8 heads, 6 + 6 layers,
feed-forward 2048, one vocabulary of 37,000 shared by source, target and output (63M
parameters). Batch size 32, 64 source and 64 target tokens, dropout and label smoothing
0.1, Adam, float32, two threads. PyTorch's model is `torch.nn.Transformer` with tied
embeddings, post-norm as published; this project's is pre-norm, as in
`configs/transformer_nmt.py`. Memory is the peak resident set of the process,
compilation included.
"""

from benchmarks import harness
from benchmarks.harness import OURS, System

SPEC = {
    "d_model": 512,
    "heads": 8,
    "layers": 6,
    "d_ff": 2048,
    "vocab_size": 37000,
    "share_embeddings": True,
    "dropout": 0.1,
    "smoothing": 0.1,
    "batch_size": 32,
    "source": 64,
    "target": 64,
}
TUNED = SPEC | harness.TUNED
SYSTEMS = [
    System(OURS, "ours", "step", TUNED),
    System(f"{OURS}, malloc as it is", "ours", "step", SPEC),
    System("torch.nn.Transformer", "pytorch", "step", SPEC, peer=True),
    System("torch.nn.Transformer, same malloc", "pytorch", "step", TUNED, peer=True),
]
GOAL, GOAL_MB = 2.2, 3600


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=4, steps=3).parse_args()
    harness.report_training(
        "transformer_base", args, SYSTEMS, goal=GOAL, goal_mb=GOAL_MB
    )


if __name__ == "__main__":
    main()
