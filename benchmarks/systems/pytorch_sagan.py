"""SAGAN in the style of heykeetae/Self-Attention-GAN.

Transposed and strided 4 x 4 convolutions, each in a module that runs one step of power
iteration and divides the kernel; batch norm in the generator; attention without pooling
over maps of 16 and 32 in the generator, of 8 and 4 in the discriminator; no classes;
hinge losses, a step of the discriminator (whose loss is also backpropagated into the
generator, unused) and one of the generator on new noise; Adam without momentum at 4e-4
and 1e-4. A step has one of each network.

Axes: B images; Z noise; C channels; I, J rows and columns.
"""

import torch
from torch import nn
from torch.nn.functional import normalize

from benchmarks.systems.pytorch_training import Served, facts


class SpectralNorm(nn.Module):
    """A layer whose kernel is divided by an estimate of its spectral norm."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer
        kernel = layer.weight
        del layer._parameters["weight"]
        self.kernel = kernel
        height = kernel.shape[0]
        self.u = nn.Parameter(normalize(torch.randn(height), dim=0), False)
        width = kernel.numel() // height
        self.v = nn.Parameter(normalize(torch.randn(width), dim=0), False)

    def forward(self, x):
        """Applies the layer with its normalised kernel."""
        matrix = self.kernel.view(len(self.u), -1)
        self.v.data = normalize(torch.mv(matrix.t().data, self.u.data), dim=0)
        self.u.data = normalize(torch.mv(matrix.data, self.v.data), dim=0)
        norm = self.u.dot(matrix.mv(self.v))
        self.layer.weight = self.kernel / norm
        return self.layer(x)


class Attention(nn.Module):
    """Self-attention over a feature map."""

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Conv2d(width, width // 8, 1)
        self.key = nn.Conv2d(width, width // 8, 1)
        self.value = nn.Conv2d(width, width, 1)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        """Maps [B, C, I, J] to [B, C, I, J]."""
        query, key, value = (
            f(x).flatten(2) for f in (self.query, self.key, self.value)
        )
        weights = torch.softmax(torch.bmm(query.transpose(1, 2), key), dim=-1)
        context = torch.bmm(value, weights.transpose(1, 2)).view_as(x)
        return self.gamma * context + x


def generator(noise: int, width: int) -> nn.Module:
    """Returns a generator of 64-pixel images from noise [B, Z, 1, 1]."""

    def up(*channels, stride=2, padding=1):
        layer = nn.ConvTranspose2d(*channels, 4, stride, padding)
        return SpectralNorm(layer), nn.BatchNorm2d(channels[1]), nn.ReLU()

    return nn.Sequential(
        *up(noise, 8 * width, stride=1, padding=0),
        *up(8 * width, 4 * width),
        *up(4 * width, 2 * width),
        Attention(2 * width),
        *up(2 * width, width),
        Attention(width),
        nn.ConvTranspose2d(width, 3, 4, 2, 1),
        nn.Tanh(),
    )


def discriminator(width: int) -> nn.Module:
    """Returns a discriminator of 64-pixel images, with logits [B, 1, 1, 1]."""

    def down(*channels):
        return SpectralNorm(nn.Conv2d(*channels, 4, 2, 1)), nn.LeakyReLU(0.1)

    return nn.Sequential(
        *down(3, width),
        *down(width, 2 * width),
        *down(2 * width, 4 * width),
        Attention(4 * width),
        *down(4 * width, 8 * width),
        Attention(8 * width),
        nn.Conv2d(8 * width, 1, 4),
    )


def build(mode: str, spec: dict) -> Served:
    """Returns a training step and the facts about the system."""
    torch.manual_seed(0)
    batch_size, noise = spec["batch_size"], spec["noise"]
    generate = generator(noise, spec["channels"])
    discriminate = discriminator(spec["channels"])
    trainable = [
        [p for p in network.parameters() if p.requires_grad]
        for network in (generate, discriminate)
    ]
    rates = 1e-4, 4e-4
    adams = [
        torch.optim.Adam(p, rate, (0.0, 0.9))
        for p, rate in zip(trainable, rates, strict=True)
    ]
    real = torch.rand(batch_size, 3, 64, 64) * 2 - 1

    def fake():
        return generate(torch.randn(batch_size, noise, 1, 1))

    def clear():
        for adam in adams:
            adam.zero_grad()

    def step() -> float:
        real_loss = torch.relu(1 - discriminate(real)).mean()
        fake_loss = torch.relu(1 + discriminate(fake())).mean()
        clear()
        (real_loss + fake_loss).backward()
        adams[1].step()
        loss = -discriminate(fake()).mean()
        clear()
        loss.backward()
        adams[0].step()
        loss.item()
        return 1

    return step, facts(nn.ModuleList([generate, discriminate]))
