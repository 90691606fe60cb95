"""An end-to-end memory network in the style of nmhkahn/MemN2N-pytorch.

The words of all stories are embedded for the keys and again for the values of each hop,
weighted by the position encoding, and summed; gradients are clipped at a norm of 40,
noise is added to them, and SGD updates one model of a single task. The units are
questions.

Axes: B questions; M sentences of a story; J words of a sentence; D width.
"""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.systems.pytorch_training import Served, trained


class MemoryNetwork(nn.Module):
    """Sukhbaatar et al. (2015), with adjacent tying."""

    def __init__(self, spec: dict):
        super().__init__()
        words, width = spec["words"], spec["width"]
        self.tables = nn.ModuleList(
            nn.Embedding(spec["vocab_size"], width, padding_idx=0)
            for _ in range(spec["hops"] + 1)
        )
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.1)
        j = torch.arange(1, words + 1)[:, None] - (words + 1) / 2
        k = torch.arange(1, width + 1) - (width + 1) / 2
        encoding = 1 + 4 * j * k / words / width
        encoding[-1] = 1  # the time index
        self.register_buffer("encoding", encoding)

    def embed(self, hop, ids):
        """Returns the sentences [..., D] of words [..., J]."""
        return (self.tables[hop](ids) * self.encoding).sum(-2)

    def forward(self, story, question):
        """Returns logits [B, words] of stories [B, M, J] and questions [B, J]."""
        state = self.embed(0, question)
        for hop in range(len(self.tables) - 1):
            scores = (self.embed(hop, story) * state[:, None]).sum(2)
            weights = torch.softmax(scores, 1)
            state = state + (self.embed(hop + 1, story) * weights[..., None]).sum(1)
        return state @ self.tables[-1].weight.T


def build(mode: str, spec: dict) -> Served:
    """Returns a training step and the facts about the system."""
    torch.manual_seed(0)
    model = MemoryNetwork(spec)
    sgd = torch.optim.SGD(model.parameters(), 1e-4)
    rows, words = spec["batch_size"], spec["words"]
    story = torch.randint(1, spec["vocab_size"], (rows, spec["memory"], words))
    question = torch.randint(1, spec["vocab_size"], (rows, words))
    answer = torch.randint(1, spec["vocab_size"], (rows,))

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(story, question), answer, reduction="sum")

    def clip_and_disturb() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 40.0)
        for parameter in model.parameters():
            parameter.grad.add_(torch.randn(parameter.shape) * 1e-3)

    return trained(model, sgd, loss, rows, clip_and_disturb)
