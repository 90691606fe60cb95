"""Layers shared by several models, and the check of a model's fields.

Dense layers, layer norm, dropout, logits; ids of the special tokens.

Axes: ... any batch; C width of the model; W vocabulary.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.dropout import dropout
from attention.fast.linear import linear
from base import ranges

PAD, BOS, EOS = 0, 1, 2  # ids of padding, start and end of a sentence

_glorot = nn.initializers.xavier_uniform()

# E[x^2] - E[x]^2, the faster variance, is less exact.
LayerNorm = functools.partial(nn.LayerNorm, use_fast_variance=False)


def check_fields(module: nn.Module) -> None:
    """Checks the fields of a model against their ranges, then calls its `check`.

    Models call it in `setup`, so that `init` and `apply` refuse a field out of range.
    `check` has rules between fields; it does not read fields without a default, since
    configs are checked before the data are known.

    Raises:
        FieldError: for the first field that is out of range.
    """
    stated = ranges.declared(type(module))
    ranges.check(stated, {name: getattr(module, name) for name in stated})
    if hasattr(module, "check"):
        module.check()


class Dense(nn.Module):
    """Dense layer x W + b, computed in `dtype`; its parameters are float32."""

    features: int
    dtype: jnp.dtype = jnp.float32
    kernel_init: Callable = _glorot
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.features))
        product = linear(x.astype(self.dtype), kernel.astype(self.dtype))
        if not self.use_bias:
            return product
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return product + bias.astype(self.dtype)


class Dropout(nn.Module):
    """Dropout with the RNG stream "dropout"; see `attention.fast.dropout`."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
        if deterministic or self.rate == 0:
            return x
        return dropout(x, self.rate, self.make_rng("dropout"))


def logits(x: jax.Array, table: jax.Array) -> jax.Array:
    """Logits x E^T over a vocabulary.

    Args:
        x: [..., C].
        table: [W, C], the output matrix E.

    Returns:
        [..., W] float32.
    """
    return jnp.einsum("...c,wc->...w", x, table, preferred_element_type=jnp.float32)
