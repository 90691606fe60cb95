"""A pointer network in the manner of shirgur/PointerNet.

Our own compact writing of what that project publishes, with the structure that decides
its speed: a linear embedding, `nn.LSTM` as encoder, and a decoder that is a Python loop
over a cell of two linear layers, which feeds the input that it points at itself (there
is no teacher forcing), projects all inputs again at every step, masks by boolean
indices what it has pointed at, and mixes what it read into its next state;
`CrossEntropyLoss` on the softmax's probabilities, Adam at 1e-4.

Mode "step" is one training step. It points as often as there are inputs and has no end.

Axes: B instances; S inputs.
"""

import math

import torch
from torch import nn

from benchmarks.systems import worker


class Attention(nn.Module):
    """Additive scores of a state and the inputs."""

    def __init__(self, hidden: int):
        super().__init__()
        self.state = nn.Linear(hidden, hidden)
        self.inputs = nn.Conv1d(hidden, hidden, 1)
        self.v = nn.Parameter(torch.empty(hidden).uniform_(-1, 1))

    def forward(self, state, encoded, seen):
        """What is read [B, hidden], and weights [B, S]; `seen` [B, S] has none."""
        keys = self.inputs(encoded.transpose(1, 2))  # [B, hidden, S]
        query = self.state(state)[..., None]
        v = self.v.expand(len(state), 1, -1)
        scores = torch.bmm(v, torch.tanh(query + keys))[:, 0]
        if seen.any():
            scores[seen] = -math.inf
        weights = torch.softmax(scores, dim=1)
        return torch.bmm(keys, weights[..., None])[..., 0], weights


class PointerNetwork(nn.Module):
    """Points at each input once."""

    def __init__(self, spec: dict):
        super().__init__()
        width, hidden, both = spec["embedding"], spec["hidden"], spec["bidirectional"]
        self.embedding = nn.Linear(2, width)
        self.encoder = nn.LSTM(
            width,
            hidden // 2 if both else hidden,
            spec["layers"],
            batch_first=True,
            bidirectional=both,
        )
        self.start = nn.Parameter(torch.empty(width).uniform_(-1, 1), False)
        self.input_gates = nn.Linear(width, 4 * hidden)
        self.state_gates = nn.Linear(hidden, 4 * hidden)
        self.attention = Attention(hidden)
        self.mix = nn.Linear(2 * hidden, hidden)

    def forward(self, points):
        """Weights [B, steps, S] and pointers [B, steps] of points [B, S, 2]."""
        embedded = self.embedding(points)
        encoded, last = self.encoder(embedded)
        # The last layer's, of both directions where there are two.
        directions = 2 if self.encoder.bidirectional else 1
        h, c = (torch.cat(tuple(x[-directions:]), dim=-1) for x in last)
        x = self.start.expand(len(points), -1)
        places = torch.arange(points.shape[1])
        seen = torch.zeros(points.shape[:2], dtype=torch.bool)
        outputs, pointers = [], []
        for _ in places:
            gates = self.input_gates(x) + self.state_gates(h)
            enter, forget, cell, out = gates.chunk(4, 1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(cell)
            h = torch.sigmoid(out) * torch.tanh(c)
            read, weights = self.attention(h, encoded, seen)
            h = torch.tanh(self.mix(torch.cat([read, h], dim=1)))
            pointer = (weights * ~seen).argmax(1)
            chosen = places == pointer[:, None]
            seen = seen | chosen
            x = embedded[chosen]
            outputs.append(weights)
            pointers.append(pointer)
        return torch.stack(outputs, 1), torch.stack(pointers, 1)


def main() -> None:
    """Serves training steps."""
    _, spec = worker.arguments()
    torch.manual_seed(0)
    model = PointerNetwork(spec)
    learned = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.Adam(learned, 1e-4)
    criterion = nn.CrossEntropyLoss()
    rows, size = spec["rows"], spec["size"]
    points = torch.rand(rows, size, 2)
    target = torch.rand(rows, size).argsort(1)

    def step() -> float:
        weights, _ = model(points)
        loss = criterion(weights.flatten(0, 1), target.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        loss.item()
        return 1

    parameters = sum(p.numel() for p in learned)
    versions = {"torch": torch.__version__}
    worker.serve(step, {"parameters": parameters, "versions": versions})


if __name__ == "__main__":
    main()
