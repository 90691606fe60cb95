"""The tape of an LSTMN: a memory slot for each of the previous tokens.

Cheng, Dong and Lapata (2016), section 3.2. Token t attends to the hidden states h_i and
memory cells c_i of the tokens before it. The scores are `additive_scores` of the query
[x_t; h~_{t-1}] and the keys h_i, the weights s^t their softmax, and

    [h~_t; c~_t] = sum_i s_i^t [h_i; c_i]

replaces the previous state of an LSTM. The tape has a fixed number of slots, so that it
can be carried by `jax.lax.scan`; the last slot holds the previous token. With as many
slots as a text has tokens, it is equivalent to the paper's tape, which grows by a slot
with each token; with fewer, attention is limited to a window.

Axes: ... any batch; B batch; K slots; T tokens; E width of a key; V width of a value.

Differs from the paper: before the first token, h~ and c~ are 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .core import Attention, attend

__all__ = ["Tape", "append", "empty_tape", "read_tape", "token_weights"]


class Tape(NamedTuple):
    """Memory slots of the previous tokens, the oldest first.

    Attributes:
        key: [..., K, E], h_i or its projection W_h h_i, for the scores.
        value: [..., K, V], [h_i; c_i], for the read vector.
        valid: [..., K] bool, False at slots without a token.
    """

    key: jax.Array
    value: jax.Array
    valid: jax.Array


def empty_tape(*batch: int, slots: int, key: int, value: int) -> Tape:
    """Tape without tokens.

    Args:
        *batch: sizes of the batch axes.
        slots: K, the number of tokens that the tape can hold.
        key: E, width of a key.
        value: V, width of a value.

    Returns:
        A tape of zeros without valid slots.

    Example:
        >>> tape = empty_tape(8, slots=5, key=3, value=6)
        >>> print(tape.key.shape, tape.value.shape, tape.valid.any())
        (8, 5, 3) (8, 5, 6) False
    """
    shape = (*batch, slots)
    zeros = jnp.zeros((*shape, key)), jnp.zeros((*shape, value))
    return Tape(*zeros, jnp.zeros(shape, bool))


def append(
    tape: Tape, key: jax.Array, value: jax.Array, valid: jax.Array | bool = True
) -> Tape:
    """Tape with a token appended and the oldest slot dropped.

    Args:
        tape: the tape before the token.
        key: [..., E] key of the token.
        value: [..., V] value of the token.
        valid: [...] bool, False at padding.

    Returns:
        A tape with the same number of slots.

    Example:
        >>> tape = empty_tape(slots=2, key=1, value=1)
        >>> tape = append(tape, key=jnp.array([5.0]), value=jnp.array([7.0]))
        >>> print(tape.key[:, 0], tape.value[:, 0], tape.valid)
        [0. 5.] [0. 7.] [False  True]
    """
    new = Tape(key, value, jnp.broadcast_to(valid, key.shape[:-1]))
    axis = tape.valid.ndim - 1

    def push(slots: jax.Array, entry: jax.Array) -> jax.Array:
        entry = jnp.expand_dims(entry, axis)
        rest = jax.lax.slice_in_dim(slots, 1, None, axis=axis)
        return jnp.concatenate([rest, entry], axis)

    return jax.tree.map(push, tape, new)


def read_tape(scores: jax.Array, tape: Tape) -> Attention:
    """Read vector [h~_t; c~_t] = sum_i s_i^t [h_i; c_i]: Cheng et al. (2016), eq. 6.

    Args:
        scores: [..., K] unnormalised, of the current token with each slot.
        tape: the tape before the current token.

    Returns:
        Attention(context [..., V], weights [..., K]), both 0 for a tape without tokens.

    Raises:
        TypeError: if `scores` is not floating.
        ValueError: if `scores` and `tape` have different numbers of slots.

    Example:
        >>> tape = empty_tape(slots=3, key=1, value=1)
        >>> for x in (1.0, 2.0):
        ...     tape = append(tape, jnp.array([x]), jnp.array([x]))
        >>> context, weights = read_tape(tape.key[:, 0], tape)
        >>> print(context, weights)
        [1.73] [0.   0.27 0.73]
    """
    context, weights = attend(
        scores[..., None, :], tape.value, mask=tape.valid[..., None, :]
    )
    return Attention(context[..., 0, :], weights[..., 0, :])


def token_weights(weights: jax.Array) -> jax.Array:
    """Weights over the tokens of a text from weights over the slots of a tape.

    Args:
        weights: [..., T, K] of each token over the slots of its tape; the last slot of
            token t holds token t - 1.

    Returns:
        [..., T, T] weights of each token over all tokens; weights on slots before the
        first token are dropped.

    Example:
        >>> slots = jnp.array([[0.0, 0.0], [0.0, 1.0], [0.3, 0.7]])  # T = 3, K = 2
        >>> print(token_weights(slots))
        [[0.  0.  0. ]
         [1.  0.  0. ]
         [0.3 0.7 0. ]]
    """
    tokens, slots = weights.shape[-2:]
    # Slot k of token t holds token t - K + k.
    token, query = jnp.arange(tokens), jnp.arange(tokens)[:, None]
    slot = token - query + slots
    inside = (slot >= 0) & (slot < slots)
    index = jnp.broadcast_to(
        jnp.clip(slot, 0, slots - 1), (*weights.shape[:-1], tokens)
    )
    return jnp.where(inside, jnp.take_along_axis(weights, index, -1), 0)
