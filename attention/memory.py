"""The memory of the Neural Turing Machine: where to look, what to read and to write.

Graves, Wayne and Danihelka (2014), section 3: a head finds rows of a memory by their
content, blends that with where it looked before, moves on and sharpens; then it reads
the mean row or erases and adds. `address` is the four stages in a row; `access` a whole
step of all heads, which models call: the same, written for its gradient.

Axes: ... any batch; H heads; N rows of the memory; M width of a row; J shifts, an odd
number centred at 0. Weights are on the simplex after every stage, as long as those
before, the shifts and the gate are.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attention.core import masked_softmax
from attention.scores import cosine_scores

_NOTHING = 1e-24  # a square: of what is shorter, the cosine's slope would overflow


def content_weights(
    key: jax.Array, memory: jax.Array, strength: jax.Array
) -> jax.Array:
    """Softmax of beta times the cosine with each row: section 3.3.1, eqs. 5 and 6.

    The cosine with a row of zeros is 0.

    Args:
        key: [..., H, M], k_t.
        memory: [..., N, M], M_t.
        strength: [..., H], beta_t, positive.

    Returns:
        [..., H, N].
    """
    cosine = cosine_scores(key, memory, jnp.ones((), key.dtype))
    return masked_softmax(cosine * strength[..., None])


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
    if taps == 1:
        return shifts * weights
    reach = taps // 2
    ring = [weights[..., -reach:], weights, weights[..., :reach]]
    ring = jnp.concatenate(ring, axis=-1)
    return sum(
        shifts[..., j, None] * ring[..., 2 * reach - j : 2 * reach - j + rows]
        for j in range(taps)
    )


def sharpen(weights: jax.Array, sharpening: jax.Array) -> jax.Array:
    """w(i)^gamma / sum_j w(j)^gamma: eq. 9.

    As the softmax of gamma log w: a weight of 0 stays 0 and has a gradient of 0.

    Args:
        weights: [..., H, N].
        sharpening: [..., H], gamma, at least 1.

    Returns:
        [..., H, N].
    """
    # Not `> 0`: the slope of the logarithm is infinite where numbers are denormal.
    there = weights >= jnp.finfo(weights.dtype).tiny
    scores = sharpening[..., None] * jnp.log(jnp.where(there, weights, 1))
    return masked_softmax(scores, mask=there)


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
    """The four stages in a row: figure 2.

    Args:
        memory: [..., N, M].
        previous: [..., H, N], of the step before.
        key: see `content_weights`.
        strength: the same.
        gate: see `interpolate`.
        shifts: see `shift`.
        sharpening: see `sharpen`.

    Returns:
        [..., H, N] where the heads look.

    Raises:
        ValueError: as `shift` does.
    """
    weights = content_weights(key, memory, strength)
    weights = interpolate(weights, previous, gate)
    return sharpen(shift(weights, shifts), sharpening)


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


class Access(NamedTuple):
    """What a step of all heads leaves: see `access`."""

    columns: jax.Array  # [..., M, N]
    weights: jax.Array  # [..., H, N]
    contexts: jax.Array  # [..., R, M]


def access(
    columns: jax.Array,
    previous: jax.Array,
    *,
    key: jax.Array,
    strength: jax.Array,
    gate: jax.Array,
    shifts: jax.Array,
    sharpening: jax.Array,
    erase: jax.Array,
    add: jax.Array,
) -> Access:
    """A whole step: all heads look, the first R read, the others erase and add.

    The same as `address`, `read` and `write` of the memory as it was before the step,
    with its gradient written out: the loop of a sequence keeps the memory, the weights
    and what the heads emitted, and does the rest again on its way back. The memory
    comes transposed, for what is done to every row then runs along the longer axis.

    Args:
        columns: [..., M, N], M_{t-1} transposed.
        previous: [..., H, N], where the heads looked before.
        key: [..., H, M].
        strength: [..., H], positive.
        gate: [..., H] in (0, 1).
        shifts: [..., H, J], a distribution.
        sharpening: [..., H], at least 1.
        erase: [..., W, M] in (0, 1), of the last W heads; R = H - W.
        add: [..., W, M], of the same.

    Returns:
        Access(columns [..., M, N] after writing, weights [..., H, N], contexts
        [..., R, M] from before it).

    Raises:
        ValueError: as `shift` does.
    """
    query = key * (strength * _inverse_norm(key, axis=-1))[..., None]
    return _access(columns, previous, query, gate, shifts, sharpening, erase, add)


def _inverse_norm(x: jax.Array, axis: int) -> jax.Array:
    """1 / |x|, or 0 for a vector of next to nothing, whose slope there is 0, too."""
    square = jnp.sum(x * x, axis=axis)
    there = square > _NOTHING
    return jnp.where(there, jax.lax.rsqrt(jnp.where(there, square, 1)), 0)


def _look(columns, query):
    """Scores [..., H, N] of queries [..., H, M], and the columns' inverse norms."""
    inverse = _inverse_norm(columns, axis=-2)[..., None, :]
    return (query @ columns) * inverse, inverse


def _focus(scores, previous, gate, shifts, sharpening):
    """From scores [..., H, N] to weights."""
    weights = interpolate(masked_softmax(scores), previous, gate)
    return sharpen(shift(weights, shifts), sharpening)


def _split(weights, erase):
    """The weights of the heads that read, and of those that write."""
    return jnp.split(weights, [weights.shape[-2] - erase.shape[-2]], axis=-2)


def _outer(left, right):
    """Sum over the heads of left [..., H, M] times right [..., H, N]: [..., M, N]."""
    return jnp.einsum("...hm,...hn->...mn", left, right)


def _over_rows(weights, columns):
    """Sums over N, of weights [..., H, N] and columns [..., M, N]: [..., H, M]."""
    return jnp.einsum("...hn,...mn->...hm", weights, columns)


def _kept(weights, erase):
    """What each head that writes keeps of the memory: a list of [..., M, N]."""
    return [
        1 - weights[..., h, None, :] * erase[..., h, :, None]
        for h in range(erase.shape[-2])
    ]


@jax.custom_vjp
def _access(columns, previous, query, gate, shifts, sharpening, erase, add):
    weights = _focus(_look(columns, query)[0], previous, gate, shifts, sharpening)
    reading, writing = _split(weights, erase)
    contexts = _over_rows(reading, columns)
    kept = math.prod(_kept(writing, erase))
    return Access(columns * kept + _outer(add, writing), weights, contexts)


def _access_forward(*inputs):
    return _access(*inputs), inputs


def _access_backward(inputs, gradients):
    columns, previous, query, gate, shifts, sharpening, erase, add = inputs
    scores, inverse = _look(columns, query)
    weights, back = jax.vjp(_focus, scores, previous, gate, shifts, sharpening)
    reading, writing = _split(weights, erase)
    # Of what is written: columns times what all heads keep, plus what they add.
    after = gradients.columns
    kept = _kept(writing, erase)
    product = after * columns
    add_gradient = _over_rows(writing, after)
    but_one = [product * math.prod(kept[:h] + kept[h + 1 :]) for h in range(len(kept))]
    erase_gradient, erased = [], []
    for h, seen in enumerate(but_one):
        erase_gradient.append(-_over_rows(writing[..., h : h + 1, :], seen))
        erased.append(erase[..., h : h + 1, :] @ seen)
    writing_gradient = add @ after - jnp.concatenate(erased, axis=-2)
    reading_gradient = gradients.contexts @ columns
    # Of where the heads look.
    both = jnp.concatenate([reading_gradient, writing_gradient], axis=-2)
    scores_gradient, previous_gradient, *others = back(gradients.weights + both)
    by_column = scores_gradient * inverse
    query_gradient = _over_rows(by_column, columns)
    shrink = inverse**2 * jnp.sum(scores_gradient * scores, axis=-2, keepdims=True)
    spread = _outer(
        jnp.concatenate([gradients.contexts, query], axis=-2),
        jnp.concatenate([reading, by_column], axis=-2),
    )
    columns_gradient = after * math.prod(kept) - columns * shrink + spread
    return (
        *(columns_gradient, previous_gradient, query_gradient, *others),
        *(jnp.concatenate(erase_gradient, axis=-2), add_gradient),
    )


_access.defvjp(_access_forward, _access_backward)
