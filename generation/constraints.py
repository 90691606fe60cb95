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


def visit_once(
    step: Step,
    carry: Carry,
    mask: jax.Array,
    rows: int,
    minimum: int | None = None,
) -> tuple[Step, Visits]:
    """Restricts pointers to different inputs: Vinyals et al. (2015), section 4.4.

    Id 0 is the start and the end; id k points at input k - 1.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token, with R equal rows.
        mask: [B, S] bool, False at padding.
        rows: number of hypotheses per instance, R.
        minimum: number of inputs before the end; None for all, so that answers are
            permutations.

    Returns:
        A step that points at no input twice and then at the end, and its first carry.
    """
    needed = mask.sum(-1)[:, None, None] if minimum is None else minimum  # [B, 1, 1]
    padding = (~mask).sum(-1)[:, None, None]

    def constrained(carry, token):
        inner, logits, weights = step(carry.carry, token)
        ids = jnp.arange(logits.shape[-1])
        visited = carry.visited | (ids == token[..., None])
        done = visited[..., 1:].sum(-1, keepdims=True) - padding >= needed
        allowed = jnp.where(ids == 0, done, ~visited)
        logits = jnp.where(allowed, logits, -jnp.inf)
        return Visits(inner, visited), logits, weights

    visited = jnp.pad(~mask, ((0, 0), (1, 0)))[:, None]
    shape = len(mask), rows, mask.shape[1] + 1
    return constrained, Visits(carry, jnp.broadcast_to(visited, shape))


class Triangles(NamedTuple):
    """A decoder's carry and the pointers of each hypothesis so far.

    Attributes:
        carry: carry of the unconstrained step.
        pointers: int32 [B, R, T], 0 at pointers to come.
        time: int32 [], number of pointers.
    """

    carry: Carry
    pointers: jax.Array
    time: jax.Array

    def take(self, parents: jax.Array) -> "Triangles":
        """Returns the state whose row r continues row `parents[b, r]`."""
        pointers = jnp.take_along_axis(self.pointers, parents[..., None], axis=1)
        return Triangles(self.carry.take(parents), pointers, self.time)


def triangles(
    step: Step, carry: Carry, mask: jax.Array, rows: int
) -> tuple[Step, Triangles]:
    """Restricts pointers to different triangles, each of three different points.

    Ids as in `visit_once`. A triangle may be repeated neither as it is nor with its
    corners in another order. A pointer that leads to no new triangle is not chosen.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token, with R equal rows.
        mask: [B, S] bool, False at padding.
        rows: number of hypotheses per instance, R.

    Returns:
        A step that ends after one triangle or more, and its first carry.
    """
    count, ids = mask.sum(-1)[:, None, None], jnp.arange(mask.shape[1] + 1)
    is_point = jnp.pad(mask, ((0, 0), (1, 0)))[:, None]  # [B, 1, S + 1]

    def constrained(carry, token):
        inner, logits, weights = step(carry.carry, token)
        t = carry.time
        pointers = jnp.where(
            t > 0, carry.pointers.at[..., t - 1].set(token), carry.pointers
        )
        number, corner = t // 3, t % 3  # of the pointer to choose
        corners = pointers.reshape(*pointers.shape[:2], -1, 3)
        # [B, R, T/3, S + 1]: whether a complete triangle has a point.
        has = (corners[..., None] == ids).any(-2)
        has &= (jnp.arange(corners.shape[2]) < number)[:, None]
        current = jax.lax.dynamic_index_in_dim(corners, number, 2, keepdims=False)
        current = jnp.where(jnp.arange(3) < corner, current, -1)  # [B, R, 3]
        # Complete triangles with the corners of this one so far, and with each point.
        fits = jnp.ones(has.shape[:3], bool)
        for k in range(2):
            index = current[..., k, None, None] % len(ids)
            chosen = jnp.take_along_axis(has, index, -1)
            fits &= (current[..., k, None] < 0) | chosen[..., 0]
        used = (has & fits[..., None]).sum(-2)  # [B, R, S + 1]
        existing = [(count - 1) * (count - 2) // 2, count - 2, jnp.ones_like(count)]
        is_new = used < jnp.select([corner == k for k in range(3)], existing)
        is_current = (current[..., None] == ids).any(-2)
        allowed = jnp.where(
            ids == 0, (corner == 0) & (t > 0), is_point & is_new & ~is_current
        )
        # Rows that have ended, or that a beam has given up, may be in any state.
        allowed |= ~allowed.any(-1, keepdims=True)
        logits = jnp.where(allowed, logits, -jnp.inf)
        return Triangles(inner, pointers, t + 1), logits, weights

    limit = max(2 * mask.shape[1] - 5, 1)  # triangles, and room for the last end
    pointers = jnp.zeros((len(mask), rows, 3 * limit + 3), jnp.int32)
    return constrained, Triangles(carry, pointers, jnp.zeros((), jnp.int32))
