"""A Neural Turing Machine in the style of loudinthecloud/pytorch-ntm.

One call of `nn.LSTM` per step, a read head and then a write head, a circular
convolution that loops over the sequences of the batch, and outputs written into a
preallocated tensor; binary cross-entropy of probabilities, gradients clipped by value
at 10, RMSprop (1e-4, alpha 0.95, momentum 0.9). Its count of wrong bits, one Python
call per bit, is left out. The copy task has `length` random vectors, the delimiter, and
as many steps without input; the units are sequences.

Axes: B sequences; N memory slots; M memory width.
"""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.systems.pytorch_training import Served, clip_values, trained

SHIFTS = 3


class Head(nn.Module):
    """A head that addresses the memory: Graves et al. (2014), section 3.3."""

    def __init__(self, spec: dict, extra: int = 0):
        super().__init__()
        self.sizes = [spec["width"], 1, 1, SHIFTS, 1] + [spec["width"]] * extra
        self.emit = nn.Linear(spec["controller"], sum(self.sizes))
        nn.init.xavier_uniform_(self.emit.weight, gain=1.4)
        nn.init.normal_(self.emit.bias, std=0.01)

    def forward(self, hidden, memory, previous):
        """Returns weights [B, N] and the other outputs of the head."""
        emitted = self.emit(hidden).split(self.sizes, dim=1)
        key, strength, gate, shift, sharpness, *rest = emitted
        similarity = F.cosine_similarity(memory + 1e-16, key[:, None] + 1e-16, dim=-1)
        content = F.softmax(F.softplus(strength) * similarity, dim=1)
        gate = torch.sigmoid(gate)
        weights = gate * content + (1 - gate) * previous
        weights = shifted(weights, F.softmax(shift, dim=1))
        weights = weights ** (1 + F.softplus(sharpness))
        return weights / (weights.sum(1, keepdim=True) + 1e-16), rest


def shifted(weights, shift):
    """Circular convolution of weights [B, N] with [B, 3], one sequence at a time."""
    result = torch.zeros(weights.shape)
    for i, (row, kernel) in enumerate(zip(weights, shift, strict=True)):
        circle = torch.cat([row[-1:], row, row[:1]])
        result[i] = F.conv1d(circle[None, None], kernel[None, None])[0, 0]
    return result


class Machine(nn.Module):
    """The controller, a read head, a write head and the output layer."""

    def __init__(self, spec: dict):
        super().__init__()
        bits, hidden = spec["bits"], spec["controller"]
        slots, width = spec["slots"], spec["width"]
        self.controller = nn.LSTM(bits + 1 + width, hidden)
        self.h = nn.Parameter(0.05 * torch.randn(1, 1, hidden))
        self.c = nn.Parameter(0.05 * torch.randn(1, 1, hidden))
        self.reader = Head(spec)
        self.writer = Head(spec, extra=2)
        self.output = nn.Linear(hidden + width, bits)
        # The initial memory and read vector are not learned.
        spread = (slots + width) ** -0.5
        self.register_buffer("memory", (2 * torch.rand(slots, width) - 1) * spread)
        self.register_buffer("read", 0.01 * torch.randn(1, width))

    def start(self, batch_size: int):
        """Returns the state before the first step."""
        weights = torch.zeros(batch_size, len(self.memory))
        memory = self.memory.repeat(batch_size, 1, 1)
        read = self.read.repeat(batch_size, 1)
        lstm = self.h.repeat(1, batch_size, 1), self.c.repeat(1, batch_size, 1)
        return memory, read, lstm, weights, weights

    def forward(self, x, state):
        """Returns bits [B, bits] for one input [B, bits + 1], and the next state."""
        memory, read, lstm, reading, writing = state
        hidden, lstm = self.controller(torch.cat([x, read], 1)[None], lstm)
        hidden = hidden[0]
        reading, _ = self.reader(hidden, memory, reading)
        read = torch.matmul(reading[:, None], memory)[:, 0]
        writing, (erase, add) = self.writer(hidden, memory, writing)
        erased = torch.matmul(writing[..., None], torch.sigmoid(erase)[:, None])
        memory = memory * (1 - erased) + torch.matmul(writing[..., None], add[:, None])
        bits = torch.sigmoid(self.output(torch.cat([hidden, read], 1)))
        return bits, (memory, read, lstm, reading, writing)


def copies(spec: dict):
    """Returns inputs [length + 1, B, bits + 1] and targets [length, B, bits]."""
    length, batch_size, bits = spec["length"], spec["batch_size"], spec["bits"]
    targets = torch.randint(0, 2, (length, batch_size, bits)).float()
    inputs = torch.zeros(length + 1, batch_size, bits + 1)
    inputs[:length, :, :bits] = targets
    inputs[length, :, bits] = 1.0
    return inputs, targets


def build(mode: str, spec: dict) -> Served:
    """Returns a training step and the facts about the system."""
    torch.manual_seed(0)
    machine, batch_size = Machine(spec), spec["batch_size"]
    rmsprop = torch.optim.RMSprop(machine.parameters(), 1e-4, alpha=0.95, momentum=0.9)
    inputs, targets = copies(spec)
    blank = torch.zeros(inputs.shape[1:])

    def loss() -> torch.Tensor:
        state = machine.start(batch_size)
        for x in inputs:
            _, state = machine(x, state)
        bits = torch.zeros(targets.shape)
        for i in range(len(targets)):
            bits[i], state = machine(blank, state)
        return F.binary_cross_entropy(bits, targets)

    return trained(machine, rmsprop, loss, batch_size, lambda: clip_values(machine, 10))
