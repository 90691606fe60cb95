"""A captioner in the style of sgrvinod's tutorial on Show, Attend and Tell.

A Python loop over an `nn.LSTMCell`, captions sorted by length and the batch cut to the
unfinished ones, attention with a ReLU that projects the whole image again at every
step, a gate as wide as the image's channels, dropout of 0.5 before the output, the
doubly stochastic penalty, packed cross-entropy, gradients clipped at 5, Adam at 4e-4;
without the encoder, on captions of equal length.

Axes: B images; S positions; E channels; T steps; W vocabulary.
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks.systems.pytorch_training import Served, clip_values, trained


class Attention(nn.Module):
    """Attention of a decoder state to the positions of an image."""

    def __init__(self, image: int, hidden: int, width: int):
        super().__init__()
        self.image = nn.Linear(image, width)
        self.state = nn.Linear(hidden, width)
        self.score = nn.Linear(width, 1)

    def forward(self, image, state):
        """Returns context [B, E] and weights [B, S] for images [B, S, E]."""
        hidden = torch.relu(self.image(image) + self.state(state)[:, None])
        weights = torch.softmax(self.score(hidden)[..., 0], dim=1)
        return (image * weights[..., None]).sum(1), weights


class Decoder(nn.Module):
    """An LSTM decoder with attention."""

    def __init__(self, spec: dict):
        super().__init__()
        hidden, depth = spec["hidden"], spec["depth"]
        self.attention = Attention(depth, hidden, spec["score_hidden"])
        self.embedding = nn.Embedding(spec["vocab_size"], spec["embedding"])
        self.cell = nn.LSTMCell(spec["embedding"] + depth, hidden)
        self.start_h, self.start_c = nn.Linear(depth, hidden), nn.Linear(depth, hidden)
        self.gate = nn.Linear(hidden, depth)
        self.output = nn.Linear(hidden, spec["vocab_size"])
        self.dropout = nn.Dropout(0.5)

    def forward(self, image, captions, lengths):
        """Returns logits [B, T, W] and weights [B, T, S]; captions sorted by length."""
        image = image.flatten(1, 2)
        embedded = self.embedding(captions)
        mean = image.mean(1)
        h, c = self.start_h(mean), self.start_c(mean)
        steps = [n - 1 for n in lengths]
        logits = torch.zeros(len(image), max(steps), self.output.out_features)
        maps = torch.zeros(len(image), max(steps), image.shape[1])
        for t in range(max(steps)):
            n = sum(length > t for length in steps)  # unfinished captions
            context, weights = self.attention(image[:n], h[:n])
            context = torch.sigmoid(self.gate(h[:n])) * context
            x = torch.cat([embedded[:n, t], context], dim=1)
            h, c = self.cell(x, (h[:n], c[:n]))
            logits[:n, t] = self.output(self.dropout(h))
            maps[:n, t] = weights
        return logits, maps, steps


def build(mode: str, spec: dict) -> Served:
    """Returns a training step and the facts about the system."""
    torch.manual_seed(0)
    model = Decoder(spec)
    adam = torch.optim.Adam(model.parameters(), 4e-4)
    criterion = nn.CrossEntropyLoss()
    batch_size, length = spec["batch_size"], spec["target"] + 1  # with the start
    side = spec["side"]
    image = torch.rand(batch_size, side, side, spec["depth"])
    captions = torch.randint(4, spec["vocab_size"], (batch_size, length))
    lengths = [length] * batch_size

    def loss() -> torch.Tensor:
        logits, maps, steps = model(image, captions, lengths)
        packed = [
            pack_padded_sequence(x, steps, batch_first=True).data
            for x in (logits, captions[:, 1:])
        ]
        return criterion(*packed) + ((1 - maps.sum(1)) ** 2).mean()

    return trained(model, adam, loss, 1, lambda: clip_values(model, 5))
