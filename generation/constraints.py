"""Decoding constraints: wrappers of a step that set logits to -inf.

Axes: B instances; R hypotheses in the search; S inputs of an instance; W vocabulary.
"""

import functools
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from generation.types import Carry, Step

# (step, carry, source, R) -> (constrained step, its carry before the first token).
Constraint = Callable[[Step, Carry, Any, int], tuple[Step, Carry]]


def forbid(step: Step, ids: Collection[int]) -> Step:
    """Forbids tokens: returns a step that sets their logits to -inf.

    Args:
        step: see `generation.types.Step`.
        ids: one or more token ids.
    """

    def constrained(carry, token):
        carry, logits, weights = step(carry, token)
        tokens = jnp.arange(logits.shape[-1])
        forbidden = functools.reduce(jnp.logical_or, [tokens == i for i in ids])
        return carry, jnp.where(forbidden, -jnp.inf, logits), weights

    return constrained


class Visits(NamedTuple):
    """A decoder's carry and the inputs that each hypothesis has pointed at.

    Attributes:
        carry: carry of the unconstrained step.
        visited: [B, R, S + 1] bool; padding counts as visited.
    """

    carry: Carry
    visited: jax.Array

    def take(self, parents: jax.Array) -> "Visits":
        """Returns the state whose row r continues row `parents[b, r]`."""
        visited = jnp.take_along_axis(self.visited, parents[..., None], axis=1)
        return Visits(self.carry.take(parents), visited)


def visit_all(
    step: Step, carry: Carry, mask: jax.Array, rows: int
) -> tuple[Step, Visits]:
    """Restricts pointers to permutations: Vinyals et al. (2015), section 4.4.

    Id 0 is the start and the end; id k points at input k - 1.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token, with R equal rows.
        mask: [B, S] bool, False at padding.
        rows: number of hypotheses per instance, R.

    Returns:
        A step that points at every input once and then at the end, and its first carry.
    """

    def constrained(carry, token):
        inner, logits, weights = step(carry.carry, token)
        ids = jnp.arange(logits.shape[-1])
        visited = carry.visited | (ids == token[..., None])
        done = visited[..., 1:].all(-1, keepdims=True)
        allowed = jnp.where(ids == 0, done, ~visited)
        logits = jnp.where(allowed, logits, -jnp.inf)
        return Visits(inner, visited), logits, weights

    visited = jnp.pad(~mask, ((0, 0), (1, 0)))[:, None]
    shape = len(mask), rows, mask.shape[1] + 1
    return constrained, Visits(carry, jnp.broadcast_to(visited, shape))
