"""Initializers of recurrent models, by the role of a parameter.

Axes: D width of a state; W vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn


class Init(NamedTuple):
    """Initializers of a model's parameters; biases start at 0, except `forget`.

    Attributes:
        kernel: for matrices that multiply an input.
        recurrent: for matrices [D, k D] that multiply a state.
        embedding: for embedding and output matrices [W, ...].
        score: for matrices of a score and an alignment; None for the defaults of
            `models.attention`.
        score_vector: for vectors of a score; None for the default.
        forget: initial bias of an LSTM's forget gate; 1 in Jozefowicz et al. (2015).
    """

    kernel: Callable
    recurrent: Callable
    embedding: Callable
    score: Callable | None = None
    score_vector: Callable | None = None
    forget: float = 0.0


def orthogonal(rng: jax.Array, shape: tuple[int, int], dtype=jnp.float32) -> jax.Array:
    """Initializer of k random orthogonal matrices side by side.

    Args:
        rng: PRNG key.
        shape: (D, k D).
        dtype: dtype of the matrices.

    Returns:
        [D, k D].
    """
    width, total = shape
    init = nn.initializers.orthogonal()
    # In a loop: concurrent batched factorisations can wait for each other on a CPU.
    blocks = [
        init(block_rng, (width, width), dtype)
        for block_rng in jax.random.split(rng, total // width)
    ]
    return jnp.concatenate(blocks, axis=1)


def uniform_init(limit: float) -> Init:
    """Uniform initializers U(-limit, limit) of all parameters except biases.

    The limit is 0.08 in Sutskever et al. (2014), section 3.4, and 0.1 in Luong et al.
    (2015), section 4.1.

    Args:
        limit: positive bound of the absolute values.

    Returns:
        An `Init` whose forget bias is 0.
    """

    def init(rng, shape, dtype=jnp.float32):
        return jax.random.uniform(rng, shape, dtype, -limit, limit)

    return Init(
        kernel=init, recurrent=init, embedding=init, score=init, score_vector=init
    )


def lstm_bias(
    rng: jax.Array, shape: tuple[int], dtype=jnp.float32, *, forget: float
) -> jax.Array:
    """Initializer of the biases [4 D] of an LSTM's gates: `forget` for f, else 0."""
    del rng
    i_f_o_g = jnp.array([0, forget, 0, 0], dtype)
    return jnp.repeat(i_f_o_g, shape[0] // 4)


STANDARD = Init(
    kernel=nn.initializers.xavier_uniform(),
    recurrent=orthogonal,
    embedding=nn.initializers.variance_scaling(1.0, "fan_out", "normal"),
    forget=1.0,
)
