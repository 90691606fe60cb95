"""DCGAN, a generative adversarial network of strided convolutions.

Radford, Metz and Chintala (2016), section 3: transposed convolutions in the generator,
strided ones in the discriminator, and batch norm in both, except after the last layer
of the generator and the first of the discriminator.

Differs from the paper: the generator gets the class through its batch norm, and the
discriminator ends in a sum over positions and a projection, both as in `models.gan`.
Self-attention and spectral norms can be added; with a spectral norm, the discriminator
has no batch norm.

Axes: as in `models.gan`.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import linen as nn

from base.ranges import SIZE
from models.gan import BatchNorm, Network
from models.layers import check_fields


class DCGAN(Network):
    """Base class of both networks, with their defaults; see `Network`."""

    attention: Annotated[Sequence[int], SIZE.each()] = ()
    spectral: bool = False

    @property
    def kernel_init(self) -> Callable:
        """Initializer of kernels: section 4."""
        return nn.initializers.normal(0.02)


class Generator(DCGAN):
    """DCGAN's generator; see the module's docstring."""

    @nn.compact
    def __call__(self, noise: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Generates images; see `models.sagan.Generator`."""
        check_fields(self)
        x = self.first_map(noise, self.width(2 * self.initial_size), train=train)
        for size in self.maps():
            norm = BatchNorm(self.classes, name=f"to_{size}_norm_1")
            x = nn.relu(norm(x, label, train=train))
            width, name = self.width(2 * size), f"to_{size}"
            x = self.layer(width, kernel=4, scale="double", name=name)(x, train=train)
            x = self.attend(x, train=train)
        x = nn.relu(BatchNorm(self.classes, name="norm")(x, label, train=train))
        image = self.layer(3, kernel=4, scale="double", name="picture")
        return jnp.tanh(image(x, train=train))

    @nn.nowrap
    def maps(self) -> list[int]:
        """See `Network`; the last transposed convolution outputs the image."""
        return self.sizes()[:-1]


class Discriminator(DCGAN):
    """DCGAN's discriminator; see the module's docstring."""

    @nn.compact
    def __call__(self, x: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Computes logits [B]; see `models.sagan.Discriminator`."""
        check_fields(self)
        for size in self.maps():
            width, name = self.width(2 * size), f"to_{size}"
            x = self.layer(width, kernel=4, scale="half", name=name)(x, train=train)
            if size != self.maps()[0] and not self.spectral:
                x = BatchNorm(name=f"{name}_norm")(x, None, train=train)
            x = self.attend(nn.leaky_relu(x, 0.2), train=train)
        return self.project(x, label, train=train)
