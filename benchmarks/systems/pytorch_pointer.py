"""A pointer network in the style of shirgur/PointerNet.

A linear embedding, `nn.LSTM` as encoder, and a decoder that is a Python loop over a
cell of two linear layers, feeds back the input it points at (there is no teacher
forcing), projects all inputs again at every step, masks the inputs already selected by
boolean indexing, and mixes the context into its next state; `CrossEntropyLoss` of the
softmax's probabilities, Adam at 1e-4. It points once per input and has no end token.

Axes: B instances; S inputs; D state width.
"""

import math

import torch
from torch import nn

from benchmarks.systems.pytorch_training import Served, trained


class Attention(nn.Module):
    """Additive attention of a state to the inputs."""

    def __init__(self, hidden: int):
        super().__init__()
        self.state = nn.Linear(hidden, hidden)
        self.inputs = nn.Conv1d(hidden, hidden, 1)
        self.v = nn.Parameter(torch.empty(hidden).uniform_(-1, 1))

    def forward(self, state, encoded, selected):
        """Returns context [B, D] and weights [B, S], 0 where `selected` [B, S]."""
        keys = self.inputs(encoded.transpose(1, 2))  # [B, D, S]
        query = self.state(state)[..., None]
        v = self.v.expand(len(state), 1, -1)
        scores = torch.bmm(v, torch.tanh(query + keys))[:, 0]
        if selected.any():
            scores[selected] = -math.inf
        weights = torch.softmax(scores, dim=1)
        return torch.bmm(keys, weights[..., None])[..., 0], weights


class PointerNetwork(nn.Module):
    """A network that points at each input once."""

    def __init__(self, spec: dict):
        super().__init__()
        width, hidden = spec["embedding"], spec["hidden"]
        self.embedding = nn.Linear(2, width)
        self.encoder = nn.LSTM(width, hidden, batch_first=True)
        self.start = nn.Parameter(torch.empty(width).uniform_(-1, 1), False)
        self.input_gates = nn.Linear(width, 4 * hidden)
        self.state_gates = nn.Linear(hidden, 4 * hidden)
        self.attention = Attention(hidden)
        self.mix = nn.Linear(2 * hidden, hidden)

    def forward(self, points):
        """Returns weights [B, S, S] and pointers [B, S] for points [B, S, 2]."""
        embedded = self.embedding(points)
        encoded, last = self.encoder(embedded)
        h, c = (x[0] for x in last)
        x = self.start.expand(len(points), -1)
        positions = torch.arange(points.shape[1])
        selected = torch.zeros(points.shape[:2], dtype=torch.bool)
        outputs, pointers = [], []
        for _ in positions:
            gates = self.input_gates(x) + self.state_gates(h)
            enter, forget, cell, out = gates.chunk(4, 1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(cell)
            h = torch.sigmoid(out) * torch.tanh(c)
            context, weights = self.attention(h, encoded, selected)
            h = torch.tanh(self.mix(torch.cat([context, h], dim=1)))
            pointer = (weights * ~selected).argmax(1)
            chosen = positions == pointer[:, None]
            selected = selected | chosen
            x = embedded[chosen]
            outputs.append(weights)
            pointers.append(pointer)
        return torch.stack(outputs, 1), torch.stack(pointers, 1)


def build(mode: str, spec: dict) -> Served:
    """Returns a training step and the facts about the system."""
    torch.manual_seed(0)
    model = PointerNetwork(spec)
    adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-4)
    criterion = nn.CrossEntropyLoss()
    batch_size, size = spec["batch_size"], spec["size"]
    points = torch.rand(batch_size, size, 2)
    target = torch.rand(batch_size, size).argsort(1)

    def loss() -> torch.Tensor:
        weights, _ = model(points)
        return criterion(weights.flatten(0, 1), target.flatten())

    return trained(model, adam, loss, 1)
