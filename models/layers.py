"""Layers shared by several models: dense layers, layer norm, dropout, logits.

Axes: ... any batch; C width of the model; W vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from errors import FieldError
from ops.dropout import dropout
from ops.layer_norm import layer_norm
from ops.linear import linear

PAD, BOS, EOS = 0, 1, 2  # ids of padding, start and end of a sentence

_glorot = nn.initializers.xavier_uniform()


def check_fields(
    module: nn.Module, choices: Mapping[str, Sequence[str]], positive: Sequence[str]
) -> None:
    """Checks fields of a model, including `dropout` if it has that field.

    Args:
        module: the model.
        choices: accepted values of each field, by name.
        positive: names of the fields that must be at least 1.

    Raises:
        FieldError: for the first field that is out of range.
    """
    for name, accepted in choices.items():
        value = getattr(module, name)
        if value not in accepted:
            raise FieldError(name, value, f"one of {', '.join(accepted)}")
    for name in positive:
        value = getattr(module, name)
        if value < 1:
            raise FieldError(name, value, "at least 1")
    rate = getattr(module, "dropout", 0.0)
    if not 0 <= rate < 1:
        raise FieldError("dropout", rate, "at least 0 and below 1")


class Dropout(nn.Module):
    """Dropout layer with the RNG stream "dropout"; see `ops.dropout`."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        if not train or self.rate == 0:
            return x
        return dropout(x, self.rate, self.make_rng("dropout"))


class LayerNorm(nn.Module):
    """Layer norm over C, computed and returned in float32; see `ops.layer_norm`."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        return layer_norm(x.astype(jnp.float32), scale, bias)


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


def logits(x: jax.Array, table: jax.Array) -> jax.Array:
    """Logits x E^T over a vocabulary.

    Args:
        x: [..., C].
        table: [W, C], the output matrix E.

    Returns:
        [..., W] float32.
    """
    return jnp.einsum("...c,wc->...w", x, table, preferred_element_type=jnp.float32)
