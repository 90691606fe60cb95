"""Training-step time of the Transformer, against other libraries.

    python -m benchmarks.transformer_step

Width 256, 4 heads, 3 + 3 layers, feed-forward 1024, vocabulary 8000 + 8000 untied,
batch size 64, 32 source and 32 target tokens, label smoothing 0.1, dropout 0.1, Adam,
float32, two threads. Tokens are random, without padding, but every system masks
padding.

Each library applies dropout at its default places: this project as in the paper;
Flax's WMT example, PyTorch and JoeyNMT also to the attention weights and inside the
feed-forward blocks. PyTorch is post-norm as published, the others are pre-norm.
`train.py` makes glibc's malloc keep large buffers: "same malloc" gives the other
libraries this setting, "malloc as it is" removes it here. The machine's rate of matrix
products is measured with XLA: the faster of two sizes.

trax 1.4.1, no longer maintained, is not measured: it needs TensorFlow and older
versions of numpy and jax than this project (`numpy.float_` is the first missing name).
"""

from benchmarks import harness
from benchmarks.harness import OURS, System

SPEC = {
    "d_model": 256,
    "heads": 4,
    "layers": 3,
    "d_ff": 1024,
    "vocab_size": 8000,
    "share_embeddings": False,
    "dropout": 0.1,
    "smoothing": 0.1,
    "batch_size": 64,
    "source": 32,
    "target": 32,
}
TUNED = SPEC | harness.TUNED
SYSTEMS = [
    System(OURS, "ours", "step", TUNED),
    System(f"{OURS}, malloc as it is", "ours", "step", SPEC),
    System("Flax WMT style", "flax_wmt", "step", SPEC),
    System("Flax WMT style, same malloc", "flax_wmt", "step", TUNED),
    System("torch.nn.Transformer", "pytorch", "step", SPEC, peer=True),
    System("torch.nn.Transformer, same malloc", "pytorch", "step", TUNED, peer=True),
    System("JoeyNMT", "joey", "step", SPEC, peer=True),
    System("JoeyNMT, same malloc", "joey", "step", TUNED, peer=True),
]
GOAL = 1.7


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=6, steps=5).parse_args()
    harness.report_training("transformer_step", args, SYSTEMS, goal=GOAL)


if __name__ == "__main__":
    main()
