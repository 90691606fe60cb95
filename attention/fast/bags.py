"""Weighted bags of words, as matrix products instead of gathers.

Axes: ... any batch; J words of a sentence; R rank of the weights; W vocabulary; D
width.
"""

import jax
import jax.numpy as jnp

_UNROLLED = 64  # words; a loop over more, unrolled, would compile for minutes


def weighted_bag(
    ids: jax.Array, table: jax.Array, words: jax.Array, units: jax.Array
) -> jax.Array:
    """Sums the embeddings of words, each unit with its own weight.

    Equals `((words @ units) * table[ids]).sum(-2)`: the weight of unit k of word j is
    l_jk = sum_r words_jr units_rk. Each factor of `words` makes one bag, a vector of
    the vocabulary, which multiplies the table. The gradient of the plain form sums into
    rows of the table, which is slow on a CPU.

    Args:
        ids: int [..., J].
        table: [W, D].
        words: [..., J, R].
        units: [R, D].

    Returns:
        [..., D].
    """
    count, rank = words.shape[-2:]
    # One word at a time: the one-hot words [..., J, W] are never materialised.
    rows = jnp.arange(len(table))

    def bag(weights: jax.Array) -> jax.Array:
        def word(j):
            return weights[..., j, None] * (ids[..., j, None] == rows)

        if count <= _UNROLLED:
            return sum(word(j) for j in range(count))
        first = jnp.zeros((*ids.shape[:-1], len(table)))
        return jax.lax.fori_loop(0, count, lambda j, x: x + word(j), first)

    bags = jnp.concatenate([bag(words[..., r]) for r in range(rank)], -1)
    return bags @ jnp.concatenate([units[r] * table for r in range(rank)])
