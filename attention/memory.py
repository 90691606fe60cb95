"""The memory of the Neural Turing Machine: where to look, what to read and to write.

Graves, Wayne and Danihelka (2014), section 3: a head finds rows of a memory by their
content, blends that with where it looked before, moves on and sharpens; then it reads
the mean row or erases and adds. `address` is the four stages in a row.

Axes: ... any batch; H heads; N rows of the memory; M width of a row; J shifts, an odd
number centred at 0. Weights are on the simplex after every stage, as long as those
before, the shifts and the gate are.
"""

import jax
import jax.numpy as jnp

from attention.core import masked_softmax
from attention.scores import cosine_scores


def content_weights(
    key: jax.Array, memory: jax.Array, sharpness: jax.Array
) -> jax.Array:
    """Softmax of beta times the cosine with each row: section 3.3.1, eqs. 5 and 6.

    The cosine with a row of zeros is 0.

    Args:
        key: [..., H, M], k_t.
        memory: [..., N, M], M_t.
        sharpness: [..., H], beta_t, positive.

    Returns:
        [..., H, N].
    """
    cosine = cosine_scores(key, memory, jnp.ones((), key.dtype))
    return masked_softmax(cosine * sharpness[..., None])


def interpolate(weights: jax.Array, previous: jax.Array, gate: jax.Array) -> jax.Array:
    """Blends with the step before, g w + (1 - g) w_{t-1}: section 3.3.2, eq. 7.

    Args:
        weights: [..., H, N] by content.
        previous: [..., H, N] of the step before.
        gate: [..., H] in (0, 1); 0 keeps the previous ones.

    Returns:
        [..., H, N].
    """
    gate = gate[..., None]
    return gate * weights + (1 - gate) * previous


def shift(weights: jax.Array, shifts: jax.Array) -> jax.Array:
    """Circular convolution w~(i) = sum_j w(j) s(i - j mod N): eq. 8.

    Args:
        weights: [..., H, N].
        shifts: [..., H, J], a distribution over moves of -(J // 2) to J // 2 rows; +1
            moves the focus to the next row, and from the last one to the first.

    Returns:
        [..., H, N].

    Raises:
        ValueError: if J is even, or above N.
    """
    taps, rows = shifts.shape[-1], weights.shape[-1]
    if taps % 2 == 0 or taps > rows:
        raise ValueError(f"{taps} shifts: must be an odd number of at most {rows} rows")
    return sum(
        shifts[..., j, None] * jnp.roll(weights, j - taps // 2, axis=-1)
        for j in range(taps)
    )


def sharpen(weights: jax.Array, power: jax.Array) -> jax.Array:
    """w(i)^gamma / sum_j w(j)^gamma: eq. 9.

    As the softmax of gamma log w: a weight of 0 stays 0 and has a gradient of 0.

    Args:
        weights: [..., H, N].
        power: [..., H], gamma, at least 1.

    Returns:
        [..., H, N].
    """
    there = weights > 0
    scores = power[..., None] * jnp.log(jnp.where(there, weights, 1))
    return masked_softmax(scores, mask=there)


def address(
    memory: jax.Array,
    previous: jax.Array,
    *,
    key: jax.Array,
    sharpness: jax.Array,
    gate: jax.Array,
    shifts: jax.Array,
    power: jax.Array,
) -> jax.Array:
    """The four stages in a row: figure 2. Shapes as in each of them.

    Returns:
        [..., H, N] where the heads look.
    """
    weights = content_weights(key, memory, sharpness)
    weights = interpolate(weights, previous, gate)
    return sharpen(shift(weights, shifts), power)


def read(weights: jax.Array, memory: jax.Array) -> jax.Array:
    """Mean row, sum_i w(i) M(i), eq. 2.

    Args:
        weights: [..., H, N].
        memory: [..., N, M].

    Returns:
        [..., H, M].
    """
    return weights @ memory


def write(
    memory: jax.Array, weights: jax.Array, erase: jax.Array, add: jax.Array
) -> jax.Array:
    """Erases and adds, M(i) (1 - w(i) e) + w(i) a: eqs. 3 and 4.

    With several heads all erase before the first adds.

    Args:
        memory: [..., N, M], of the step before.
        weights: [..., H, N].
        erase: [..., H, M] in (0, 1), e_t.
        add: [..., H, M], a_t.

    Returns:
        [..., N, M].
    """
    kept = jnp.prod(1 - weights[..., None] * erase[..., None, :], axis=-3)
    return memory * kept + jnp.swapaxes(weights, -1, -2) @ add
