"""The training step that the PyTorch systems share."""

from collections.abc import Callable

import torch
from torch import nn

Served = tuple[Callable[[], float], dict]


def trained(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[], torch.Tensor],
    units: float,
    change: Callable[[], object] = lambda: None,
) -> Served:
    """Returns a training step, and the facts about its system.

    Args:
        model: the model.
        optimizer: of the model's parameters.
        loss: returns the loss.
        units: number of units of a step.
        change: clips the gradients, or changes them otherwise.
    """

    def step() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        change()
        optimizer.step()
        value.item()
        return units

    return step, facts(model)


def clip_values(model: nn.Module, bound: float) -> None:
    """Clips each value of the gradients, one parameter after another."""
    for parameter in model.parameters():
        parameter.grad.clamp_(-bound, bound)


def facts(model: nn.Module) -> dict:
    """Returns the number of trained parameters, and the version of PyTorch."""
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return {"parameters": trained, "versions": {"torch": torch.__version__}}
