"""Memory addressing, reading and writing of the Neural Turing Machine.

Graves, Wayne and Danihelka (2014), section 3. A head compares its key with every memory
slot, interpolates between the resulting and the previous step's weights, and shifts and
sharpens the result (`address`). It then reads the weighted mean of the slots (`read`),
or erases and adds (`write`).

The weights after every stage are a distribution over slots, provided that the previous
weights and the shifts are distributions and the gate is in [0, 1].

Axes: ... any batch; H heads; N memory slots; M memory width; J shifts, an odd number
centred at 0.

Differs from the paper: the cosine with a slot or key of zeros is 0, and `sharpen` is
the softmax of gamma log w, so that a weight of 0 has a gradient of 0.
"""

import functools

import jax
import jax.numpy as jnp

from .core import masked_softmax
from .scores import cosine_scores

__all__ = [
    "address",
    "content_weights",
    "interpolate",
    "read",
    "sharpen",
    "shift",
    "write",
]


def content_weights(
    key: jax.Array, memory: jax.Array, strength: jax.Array
) -> jax.Array:
    """Content addressing softmax_i(beta K[k, M(i)]): Graves et al. (2014), eqs. 5, 6.

    Args:
        key: [..., H, M], k_t, compared with each slot by cosine similarity.
        memory: [..., N, M], M_t.
        strength: [..., H], beta_t, positive.

    Returns:
        [..., H, N] weights.

    Example:
        >>> memory = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> print(content_weights(jnp.array([[0.0, 2.0]]), memory, jnp.array([5.0])))
        [[0.01 0.81 0.19]]
    """
    cosine = cosine_scores(key, memory, jnp.ones((), key.dtype))
    return masked_softmax(cosine * strength[..., None])


def interpolate(weights: jax.Array, previous: jax.Array, gate: jax.Array) -> jax.Array:
    """Interpolation g w + (1 - g) w_{t-1} of weights: Graves et al. (2014), eq. 7.

    Args:
        weights: [..., H, N] from `content_weights`.
        previous: [..., H, N] weights of the previous step, w_{t-1}.
        gate: [..., H], g_t, in (0, 1); 0 keeps the previous weights.

    Returns:
        [..., H, N] weights.

    Example:
        >>> print(interpolate(jnp.eye(3)[:1], jnp.eye(3)[1:2], jnp.array([0.7])))
        [[0.7 0.3 0. ]]
    """
    gate = gate[..., None]
    return gate * weights + (1 - gate) * previous


def shift(weights: jax.Array, shifts: jax.Array) -> jax.Array:
    """Circular shift sum_j w(j) s(i - j mod N) of weights: Graves et al. (2014), eq. 8.

    Args:
        weights: [..., H, N] from `interpolate`.
        shifts: [..., H, J], s_t, a distribution over shifts by -(J // 2) to J // 2
            slots. A shift by +1 moves the focus to the next slot, and from the last
            slot to the first.

    Returns:
        [..., H, N] weights.

    Raises:
        ValueError: if J is even or greater than N.

    Example:
        >>> print(shift(jnp.eye(4)[3:], jnp.array([[0.0, 0.2, 0.8]])))
        [[0.8 0.  0.  0.2]]
    """
    taps, slots = shifts.shape[-1], weights.shape[-1]
    if taps % 2 == 0 or taps > slots:
        raise ValueError(
            f"the number of shifts is {taps}: "
            f"must be odd and at most {slots}, the number of slots"
        )
    if taps == 1:
        return shifts * weights
    reach = taps // 2
    parts = [weights[..., -reach:], weights, weights[..., :reach]]
    ring = jnp.concatenate(parts, axis=-1)
    shifted = [
        shifts[..., j, None] * ring[..., 2 * reach - j : 2 * reach - j + slots]
        for j in range(taps)
    ]
    return functools.reduce(jnp.add, shifted)


def sharpen(weights: jax.Array, sharpening: jax.Array) -> jax.Array:
    """Sharpening w(i)^gamma / sum_j w(j)^gamma: Graves et al. (2014), eq. 9.

    Args:
        weights: [..., H, N] from `shift`.
        sharpening: [..., H], gamma_t, at least 1.

    Returns:
        [..., H, N] weights, 0 where `weights` is 0.

    Example:
        >>> print(sharpen(jnp.array([[0.2, 0.5, 0.3]]), jnp.array([4.0])))
        [[0.02 0.87 0.11]]
    """
    # Not `> 0`: the derivative of the logarithm overflows for denormal numbers.
    positive = weights >= jnp.finfo(weights.dtype).tiny
    scores = sharpening[..., None] * jnp.log(jnp.where(positive, weights, 1))
    return masked_softmax(scores, mask=positive)


def address(
    memory: jax.Array,
    previous: jax.Array,
    *,
    key: jax.Array,
    strength: jax.Array,
    gate: jax.Array,
    shifts: jax.Array,
    sharpening: jax.Array,
) -> jax.Array:
    """NTM addressing in four stages: Graves et al. (2014), figure 2 and eqs. 5 to 9.

    Args:
        memory: [..., N, M], M_t.
        previous: [..., H, N] weights of the previous step, w_{t-1}.
        key: [..., H, M], k_t; see `content_weights`.
        strength: [..., H], beta_t, positive; see `content_weights`.
        gate: [..., H], g_t, in (0, 1); see `interpolate`.
        shifts: [..., H, J], s_t, a distribution; see `shift`.
        sharpening: [..., H], gamma_t, at least 1; see `sharpen`.

    Returns:
        [..., H, N] weights, w_t.

    Raises:
        ValueError: if J is even or greater than N.

    Example:
        >>> weights = address(
        ...     jnp.eye(4),
        ...     previous=jnp.eye(4)[:1],
        ...     key=jnp.eye(4)[2:3],
        ...     strength=jnp.array([20.0]),
        ...     gate=jnp.array([1.0]),
        ...     shifts=jnp.array([[0.0, 0.0, 1.0]]),
        ...     sharpening=jnp.array([1.0]),
        ... )
        >>> print(weights)  # slot 2 by content, shifted by one
        [[0. 0. 0. 1.]]
    """
    weights = content_weights(key, memory, strength)
    weights = interpolate(weights, previous, gate)
    return sharpen(shift(weights, shifts), sharpening)


def read(weights: jax.Array, memory: jax.Array) -> jax.Array:
    """Read vectors sum_i w(i) M(i): Graves et al. (2014), eq. 2.

    Args:
        weights: [..., H, N] of the read heads, w_t.
        memory: [..., N, M], M_t.

    Returns:
        [..., H, M] read vectors, r_t.

    Example:
        >>> print(read(jnp.array([[0.5, 0.5, 0.0]]), jnp.array([[1.0], [3.0], [9.0]])))
        [[2.]]
    """
    return weights @ memory


def write(
    memory: jax.Array, weights: jax.Array, erase: jax.Array, add: jax.Array
) -> jax.Array:
    """Memory write M(i) (1 - w(i) e) + w(i) a: Graves et al. (2014), eqs. 3 and 4.

    With several heads, all of them erase before any of them adds.

    Args:
        memory: [..., N, M], M_{t-1}.
        weights: [..., H, N] of the write heads, w_t.
        erase: [..., H, M] erase vectors, e_t, in (0, 1).
        add: [..., H, M] add vectors, a_t.

    Returns:
        [..., N, M] the memory after the step, M_t.

    Example:
        >>> memory, focus = jnp.ones((3, 2)), jnp.array([[0.0, 1.0, 0.0]])
        >>> add = jnp.array([[5.0, 7.0]])
        >>> print(write(memory, focus, erase=jnp.ones((1, 2)), add=add))
        [[1. 1.]
         [5. 7.]
         [1. 1.]]
    """
    retained = jnp.prod(1 - weights[..., None] * erase[..., None, :], axis=-3)
    return memory * retained + jnp.swapaxes(weights, -1, -2) @ add
