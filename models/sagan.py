"""SAGAN, a generative adversarial network with self-attention: Zhang et al. (2019).

The generator and the discriminator consist of residual blocks, with self-attention over
feature maps of chosen sizes (`attention.spatial`). Every layer of both is divided by an
estimate of its spectral norm (Miyato et al. 2018). The class enters the generator by
the scale and bias of its batch norm and the discriminator by a projection (Miyato and
Koyama 2018). The residual blocks follow the authors' code.

The attention block, eqs. 1 to 3, is in `models.non_local`.

Differs from the paper: values have C / `value_reduction` channels, by default C (C / 8
as published, C / 2 in the authors' code); `pool` optionally pools keys and values, as
that code does. `spatial_noise` and a larger `initial_size`, not in the paper, keep
distant positions of a network without attention from sharing information.

Axes: as in `models.gan`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.gan import BatchNorm, Network
from models.layers import check_fields


class Generator(Network):
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


class Discriminator(Network):
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
