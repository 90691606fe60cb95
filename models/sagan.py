"""SAGAN, a generative adversarial network with self-attention: Zhang et al. (2019).

The generator and the discriminator consist of residual blocks, with self-attention over
feature maps of chosen sizes (`attention.spatial`). Every layer of both is divided by an
estimate of its spectral norm (Miyato et al. 2018). The class enters the generator by
the scale and bias of its batch norm and the discriminator by a projection (Miyato and
Koyama 2018). The residual blocks follow the authors' code.

The attention block is y = gamma o + x (eq. 3), with gamma initially 0. `form` selects
an entry of `attention.spatial.NON_LOCAL` (Wang et al. 2018).

Differs from the paper: values have C / `value_reduction` channels, by default C (C / 8
as published, C / 2 in the authors' code); `pool` optionally pools keys and values, as
that code does. `spatial_noise` and a larger `initial_size`, not in the paper, keep
distant positions of a network without attention from sharing information.

Axes: B images; I, J rows and columns; K, L rows and columns of the keys' map; C
channels; Z width of the latent noise; Y classes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import Attention
from attention.declaration import ScoreParts
from attention.spatial import NON_LOCAL, max_pool
from base.records import ScoreDetails
from models.gan import BatchNorm, Network
from models.layers import check_fields
from models.recording import score_details, sow_attention
from models.spectral import Layer


class SpatialSelfAttention(nn.Module):
    """Self-attention over a feature map: Zhang et al. (2019), eqs. 1-3.

    beta_{j,i} = softmax_i(g(x_j) f(x_i)), o_j = v(sum_i beta_{j,i} h(x_i)), and
    y = gamma o + x, with f the keys, g the queries, h the values, v the output layer.

    Attributes:
        form: a key of `attention.spatial.NON_LOCAL`.
        key_reduction: C / width of queries and keys; 8 in the paper.
        value_reduction: C / width of values; the output layer restores C channels.
        pool: whether keys and values are max-pooled over 2 x 2 positions.
        spectral: see `normed_kernel`.
        layer: index among the attention layers of a network, from 0.
    """

    form: str = "embedded_gaussian"
    key_reduction: int = 8
    value_reduction: int = 1
    pool: bool = False
    spectral: bool = True
    layer: int = 0

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Applies self-attention to a map x; sows its weights as an `AttentionRecord`.

        Args:
            x: [B, I, J, C].
            train: whether spectral norms make a power iteration.

        Returns:
            [B, I, J, C]; the recorded weights are [B, I, J, K, L].
        """
        width = x.shape[-1]
        key_width = max(width // self.key_reduction, 1)
        value_width = max(width // self.value_reduction, 1)
        layer = partial(Layer, spectral=self.spectral, kernel=0, use_bias=False)
        query = key = x
        if self.form != "gaussian":  # "gaussian" compares x itself
            query = layer(key_width, name="query")(x, train=train)  # g(x)
            key = layer(key_width, name="key")(x, train=train)  # f(x)
        value = layer(value_width, name="value")(x, train=train)  # h(x)
        if self.pool:
            # At [64, 16, 16, 64], `nn.max_pool` and its gradient take 7 times as long,
            # on two threads of a CPU.
            key, value = max_pool(key), max_pool(value)
        # beta_{j,i} = softmax_i(f(x_i) g(x_j)), sum_i beta_{j,i} h(x_i)
        context, beta = self._form(query.shape[-1])(query, key, value)
        o = layer(width, name="output")(context, train=train)  # v(...)
        gamma = self.param("gamma", nn.initializers.zeros, ())
        y = gamma * o + x

        def details() -> ScoreDetails | None:
            if self.form not in ("gaussian", "embedded_gaussian"):
                return None  # the weights are not a softmax
            rows = (
                each.reshape(len(x), 1, -1, each.shape[-1]) for each in (query, key)
            )
            return score_details(ScoreParts(*rows))

        names = {"kind": "spatial", "queries": "map", "keys": "map"}
        sow_attention(self, beta, details, layer=self.layer, **names)
        return y

    def _form(self, width: int) -> Callable[..., Attention]:
        """Returns the non-local form, for queries and keys of this width."""
        if self.form != "concatenation":
            return NON_LOCAL[self.form]
        w = self.param("w", nn.initializers.normal(width**-0.5), (2 * width,))
        return partial(NON_LOCAL[self.form], w=w)


class SAGAN(Network):
    """Base class of both networks; see `Network`."""

    self_attention: ClassVar[type[nn.Module]] = SpatialSelfAttention


class Generator(SAGAN):
    """SAGAN's generator of residual blocks; see the module's docstring."""

    @nn.compact
    def __call__(self, noise: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Generates images.

        Args:
            noise: [B, Z]; with `spatial_noise`, Z is a multiple of `initial_size`^2.
            label: [B] int classes below Y.
            train: whether batch norm uses this batch's statistics and updates the
                moving ones, and spectral norms make a power iteration.

        Returns:
            [B, I, J, 3] images in [-1, 1].
        """
        check_fields(self)
        x = self.first_map(noise, self.width(self.initial_size), train=train)
        for size in self.maps():
            x = self.block(x, label, size, train=train)
            x = self.attend(x, train=train)
        x = nn.relu(BatchNorm(name="norm")(x, None, train=train))
        return jnp.tanh(self.layer(3, name="picture")(x, train=train))

    @nn.nowrap
    def maps(self) -> list[int]:
        """See `Network`."""
        return self.sizes()

    def block(
        self, x: jax.Array, label: jax.Array, size: int, *, train: bool
    ) -> jax.Array:
        """Applies a residual block, which doubles the size of a map to `size`."""
        name, width = f"to_{size}", self.width(size)
        norm = partial(BatchNorm, self.classes)
        y = nn.relu(norm(name=f"{name}_norm_1")(x, label, train=train))
        y = self.layer(width, scale="double", name=f"{name}_conv_1")(y, train=train)
        y = nn.relu(norm(name=f"{name}_norm_2")(y, label, train=train))
        y = self.layer(width, name=f"{name}_conv_2")(y, train=train)
        # Before upsampling, the 1 x 1 layer has a quarter of the positions.
        skipped = self.layer(width, kernel=0, name=f"{name}_skip")(x, train=train)
        return y + jnp.repeat(jnp.repeat(skipped, 2, axis=1), 2, axis=2)


class Discriminator(SAGAN):
    """SAGAN's discriminator of residual blocks; see the module's docstring."""

    @nn.compact
    def __call__(self, x: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Computes the logits w h + <e_y, h>: Miyato and Koyama (2018), eq. 3.

        Args:
            x: [B, I, J, 3] images in [-1, 1].
            label: [B] int classes below Y.
            train: as for `Generator`.

        Returns:
            [B] logits, positive for images classified as real.
        """
        check_fields(self)
        for number, size in enumerate(self.maps()):
            x = self.block(x, size, activate=number > 0, train=train)
            x = self.attend(x, train=train)
        y = self.layer(x.shape[-1], name="last_conv_1")(nn.relu(x), train=train)
        y = self.layer(x.shape[-1], name="last_conv_2")(nn.relu(y), train=train)
        return self.project(nn.relu(x + y), label, train=train)

    def block(
        self, x: jax.Array, size: int, *, activate: bool, train: bool
    ) -> jax.Array:
        """Applies a residual block, which halves the size of a map to `size`."""
        name, width = f"to_{size}", self.width(2 * size)
        y = nn.relu(x) if activate else x  # not the image
        y = nn.relu(self.layer(width, name=f"{name}_conv_1")(y, train=train))
        y = self.layer(width, scale="half", name=f"{name}_conv_2")(y, train=train)
        skip = self.layer(width, kernel=0, name=f"{name}_skip")
        return y + skip(_mean(x), train=train)


def _mean(x: jax.Array) -> jax.Array:
    """Mean pooling over 2 x 2 positions: [B, I, J, C] to [B, I / 2, J / 2, C]."""
    batch, rows, columns, width = x.shape
    blocks = x.reshape(batch, rows // 2, 2, columns // 2, 2, width)
    return blocks.mean((2, 4))


def gammas(params: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Returns |gamma| of each attention layer, by the name gamma_<network>_<size>.

    Args:
        params: learned parameters of "generator" and "discriminator".
    """
    return {
        f"gamma_{network}_{layer.removeprefix('attention_')}": abs(values["gamma"])
        for network, layers in params.items()
        for layer, values in layers.items()
        if "gamma" in values
    }
