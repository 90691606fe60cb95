"""RAM in the style of kevinzakka/recurrent-visual-attention.

A Python loop over the glimpses, in each of which every image is padded and the patches
are cut out in a loop over the images, at indices that are tensors; a locator with a
hidden layer, which draws a location and computes its log-probability after the last
glimpse, too; cross-entropy, mean squared error of the baselines, and 0.01 times
REINFORCE; Adam at 3e-4.

Axes: B images; I rows and columns of an image; P of a patch; T glimpses.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal

from benchmarks.systems.pytorch_training import Served, trained


class RAM(nn.Module):
    """Recurrent attention to grey images."""

    def __init__(self, spec: dict):
        super().__init__()
        self.size, self.glimpses, self.std = spec["size"], spec["glimpses"], spec["std"]
        inner, width, hidden = spec["inner"], spec["width"], spec["hidden"]
        self.patch, self.what = nn.Linear(self.size**2, inner), nn.Linear(inner, width)
        self.location, self.where = nn.Linear(2, inner), nn.Linear(inner, width)
        self.input, self.state = nn.Linear(width, hidden), nn.Linear(hidden, hidden)
        self.locator_hidden = nn.Linear(hidden, hidden // 2)
        self.locator = nn.Linear(hidden // 2, 2)
        self.baseline = nn.Linear(hidden, 1)
        self.classifier = nn.Linear(hidden, spec["classes"])

    def cut(self, image, location):
        """Returns patches [B, 1, P, P] of images [B, 1, I, I] around (column, row)."""
        first = (0.5 * (location + 1) * image.shape[-1]).long()
        last, margin = first + self.size, self.size // 2
        padded = F.pad(image, (margin, margin, margin, margin))
        return torch.stack(
            [
                padded[i, :, first[i, 1] : last[i, 1], first[i, 0] : last[i, 0]]
                for i in range(len(image))
            ]
        )

    def forward(self, image):
        """Returns log-probabilities [B, classes], and [B, T] of draws and baselines."""
        h = torch.zeros(len(image), self.state.in_features)
        location = torch.empty(len(image), 2).uniform_(-1, 1)
        draws, baselines = [], []
        for _ in range(self.glimpses):
            patch = torch.relu(self.patch(self.cut(image, location).flatten(1)))
            place = torch.relu(self.location(location))
            g = torch.relu(self.what(patch) + self.where(place))
            h = torch.relu(self.input(g) + self.state(h))
            hidden = torch.relu(self.locator_hidden(h.detach()))
            normal = Normal(torch.tanh(self.locator(hidden)), self.std)
            location = normal.rsample().detach()
            draws.append(normal.log_prob(location).sum(1))
            location = location.clamp(-1, 1)
            baselines.append(self.baseline(h.detach())[:, 0])
        log_probabilities = torch.log_softmax(self.classifier(h), 1)
        return log_probabilities, torch.stack(draws, 1), torch.stack(baselines, 1)


def build(mode: str, spec: dict) -> Served:
    """Returns a training step and the facts about the system."""
    torch.manual_seed(0)
    model, batch_size = RAM(spec), spec["batch_size"]
    adam = torch.optim.Adam(model.parameters(), 3e-4)
    image = torch.rand(batch_size, 1, spec["side"], spec["side"])
    label = torch.randint(0, spec["classes"], (batch_size,))

    def loss() -> torch.Tensor:
        log_probabilities, draws, baselines = model(image)
        correct = (log_probabilities.argmax(1) == label).float()
        reward = correct[:, None].expand_as(baselines)
        surrogate = -(draws * (reward - baselines.detach())).sum(1).mean()
        error = F.mse_loss(baselines, reward)
        return F.nll_loss(log_probabilities, label) + error + 0.01 * surrogate

    return trained(model, adam, loss, 1)
