"""An LSTMN as a plain PyTorch loop over its tape: Cheng et al. (2016), eqs. 4 to 9.

Not published: the structure of straightforward code. A Python list of the states,
stacked and projected again at each step; the first step has no tape. Cross-entropy of a
language model, gradients clipped at a norm of 1, Adam.

Axes: B sentences; T words; D hidden width.
"""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.systems.pytorch_training import Served, trained


class LSTMN(nn.Module):
    """Embeddings, one layer of LSTMN, and the output layer."""

    def __init__(self, spec: dict):
        super().__init__()
        words, width, hidden = spec["vocab_size"], spec["embedding"], spec["hidden"]
        self.hidden = hidden
        self.embedding = nn.Embedding(words, width)
        self.input = nn.Linear(width, 4 * hidden)
        self.state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.score_state = nn.Linear(hidden, hidden, bias=False)
        self.score_input = nn.Linear(width, hidden, bias=False)
        self.score_summary = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.output = nn.Linear(hidden, words)

    def forward(self, tokens):
        """Returns logits [B, T, words] of tokens [B, T]."""
        embedded = self.embedding(tokens)
        zeros = torch.zeros(len(tokens), self.hidden)
        summary, memory, hiddens, cells = zeros, zeros, [], []
        for x in embedded.unbind(1):
            if hiddens:
                tape = torch.stack(hiddens, 1)
                scores = self.score(
                    torch.tanh(
                        self.score_state(tape)
                        + self.score_input(x)[:, None]
                        + self.score_summary(summary)[:, None]
                    )
                )
                weights = torch.softmax(scores, 1)
                summary = (weights * tape).sum(1)
                memory = (weights * torch.stack(cells, 1)).sum(1)
            gates = self.input(x) + self.state(summary)
            i, f, o, c = gates.chunk(4, 1)
            cell = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(c)
            hiddens.append(torch.sigmoid(o) * torch.tanh(cell))
            cells.append(cell)
        return self.output(torch.stack(hiddens, 1))


def build(mode: str, spec: dict) -> Served:
    """Returns a training step and the facts about the system."""
    torch.manual_seed(0)
    model = LSTMN(spec)
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    shape = spec["batch_size"], spec["length"] + 1
    tokens = torch.randint(4, spec["vocab_size"], shape)

    def loss() -> torch.Tensor:
        logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def clip() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    return trained(model, adam, loss, 1, clip)
