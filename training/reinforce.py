"""REINFORCE for a stochastic model, such as one with a hard alignment.

Xu et al. (2015), section 4.1: the gradient of the expected log-likelihood is estimated
by (reward - baseline) grad log p(s), eq. 12. The baseline is a moving average of the
rewards (the equation after it), and an entropy bonus is added. The task defines the
reward; the model sows a `base.records.SampleRecord`.

Differs from the paper in `sentence_loss`: a sample's reward is the log-likelihood of
its token and of later tokens, not of the whole sentence; the baseline, a moving average
that starts at 0, is per token; soft weights never replace a sample.

Axes: B batch; T target steps; `...` layer axes such as heads.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from attention.alignments import reinforce, update_baseline
from attention.masks import later_mask
from base.fields import Fields
from base.ranges import WEIGHT
from base.records import SampleRecord
from training.state import Metrics


class Weights(Fields):
    """`config.loss`: weights of the terms of REINFORCE."""

    # Weight of the reward, which trains hard alignments and locations by REINFORCE.
    reward: Annotated[float, WEIGHT] = 0.1
    # Weight of the entropy bonus of hard alignments.
    entropy: Annotated[float, WEIGHT] = 0.0


def initial_baseline(needs_reinforce: bool) -> dict[str, jax.Array] | None:
    """Returns the initial `TrainState.extra`; None without REINFORCE."""
    return {"baseline": jnp.zeros(())} if needs_reinforce else None


def reinforce_loss(
    samples: Sequence[SampleRecord],
    reward: jax.Array,
    baseline: jax.Array,
    mask: jax.Array,
    weights: ConfigDict,
) -> jax.Array:
    """REINFORCE surrogate loss, Xu et al. (2015), eqs. 11 and 12.

    Only its gradient is meaningful.

    Args:
        samples: those of each hard layer, [B, ..., T].
        reward: [B, T] or [B, 1]; its gradient is stopped.
        baseline: broadcasts against `reward`.
        mask: [B, T] float32, 0 at padding.
        weights: `config.loss`, with `reward` (lambda_r) and `entropy` (lambda_e).

    Returns:
        The sum over the batch, a scalar.
    """
    log_probability = _by_step([layer.log_probability for layer in samples])
    surrogate = reinforce(log_probability, reward, baseline)
    entropy = _by_step([layer.entropy for layer in samples])
    return jnp.sum(mask * (weights.reward * surrogate - weights.entropy * entropy))


def sentence_loss(
    samples: Sequence[SampleRecord],
    reward: jax.Array,
    ends: jax.Array,
    baseline: jax.Array,
    mask: jax.Array,
    weights: ConfigDict,
) -> jax.Array:
    """REINFORCE loss of samples that affect their token and all later ones.

    Args:
        samples: those of each hard layer, [B, ..., T].
        reward: [B, T] reward of each token; its gradient is stopped.
        ends: bool [B, T], True at the last token of each sentence of a packed row.
        baseline: scalar baseline of the reward of one token.
        mask: [B, T] float32, 0 at padding.
        weights: see `reinforce_loss`.

    Returns:
        The sum over the batch, a scalar.
    """
    later = later_mask(ends).astype(jnp.float32)  # [B, T, T]
    reward = jnp.einsum("btu,bu->bt", later, reward)
    baseline = baseline * jnp.einsum("btu,bu->bt", later, mask)
    return reinforce_loss(samples, reward, baseline, mask, weights)


def baseline_loss(baseline: jax.Array, reward: jax.Array) -> jax.Array:
    """Squared error of a learned baseline: Mnih et al. (2014), section 3.2.

    Args:
        baseline: [B, T] reward that the model expects at each sample.
        reward: [B, T] or [B, 1]; its gradient is stopped.

    Returns:
        The sum over the batch, a scalar.
    """
    return jnp.sum(jnp.square(jax.lax.stop_gradient(reward) - baseline))


def move_baseline(extra: Mapping[str, Any] | None, metrics: Metrics) -> Any:
    """Returns `extra` with its baseline moved towards the mean reward of the batch."""
    if extra is None:
        return None
    total, count = metrics["reward"]
    mean = total / jnp.maximum(count, 1)
    return {**extra, "baseline": update_baseline(extra["baseline"], mean)}


def _by_step(values: Sequence[jax.Array]) -> jax.Array:
    """Sums [B, ..., T] over layers and the axes between B and T: [B, T]."""
    sums = [x.sum(tuple(range(1, x.ndim - 1))) for x in values]
    return jnp.asarray(sum(sums))
