"""Label-smoothed cross-entropy over a vocabulary.

Axes: ... any batch; W vocabulary.
"""

import jax
import jax.numpy as jnp
import optax


def smoothed_cross_entropy(
    logits: jax.Array, targets: jax.Array, smoothing: float, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy with label smoothing: Szegedy et al. (2016), section 7.

    The target distribution is q = (1 - smoothing) one_hot(target) + smoothing / W, as
    in Vaswani et al. (2017), section 5.4. The minimum is the entropy of q, not 0.

    Args:
        logits: [..., W] float32.
        targets: [...] int32 in [0, W).
        smoothing: in [0, 1).
        weights: [...] float32, 0 at padding.

    Returns:
        The weighted sum over all positions and the sum of the weights, two scalars.
    """
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    if smoothing:  # a pass over all logits
        uniform = jax.nn.logsumexp(logits, axis=-1) - logits.mean(-1)
        losses = (1 - smoothing) * losses + smoothing * uniform
    return jnp.sum(losses * weights), jnp.sum(weights)
