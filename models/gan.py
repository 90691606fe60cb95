"""Parts that the generators and discriminators of DCGAN and SAGAN share.

Class-conditional batch norm; the sizes and widths of the maps; the first map of a
generator; and the projection that ends a discriminator (Miyato and Koyama 2018).

Axes: B images; I, J rows and columns; C channels; Z width of the latent noise; Y
classes.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.spatial import NON_LOCAL
from base.devices import data_axis
from base.errors import FieldError
from base.ranges import SIZE, Choice
from models.non_local import SpatialSelfAttention
from models.spectral import Layer, normed_kernel


class BatchNorm(nn.Module):
    """Batch norm, optionally with a scale and bias per class (Miyato and Koyama 2018).

    `nn.BatchNorm` normalises; the scale and bias per class, and a decay that grows from
    0.1, are added here. With a constant decay, the first steps of a short training
    dominate its moving statistics. Batch statistics are averaged over the axis of
    `base.devices.data_axis`, if there is one.

    Attributes:
        classes: Y; 0 for a single scale and bias.
    """

    classes: int = 0

    @nn.compact
    def __call__(
        self, x: jax.Array, label: jax.Array | None, *, train: bool
    ) -> jax.Array:
        """Normalises x [B, I, J, C]; `label` [B] selects the scale and bias."""
        steps = self.variable("batch_stats", "steps", jnp.zeros, ())
        normalise = nn.BatchNorm(
            momentum=growing_decay(steps.value),
            use_scale=False,
            use_bias=False,
            axis_name=data_axis(),
            name="statistics",
        )
        x = normalise(x, use_running_average=not train)
        if train and not self.is_initializing():
            steps.value += 1
        shape = (self.classes, x.shape[-1]) if self.classes else x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        if self.classes:
            scale, bias = scale[label][:, None, None], bias[label][:, None, None]
        return x * scale + bias


def growing_decay(steps: jax.Array, decay: float = 0.999) -> jax.Array:
    """Decay of a moving average, growing with the steps from 0.1 to `decay`.

    Until `decay` is reached, the average covers about the last tenth of the steps, so
    that the initial value is soon forgotten.

    Args:
        steps: scalar, number of previous updates.
        decay: maximum decay, in [0, 1).

    Returns:
        Scalar decay of the next update.
    """
    return jnp.minimum(decay, (1 + steps) / (10 + steps))


class Network(nn.Module):
    """Base class of generators and discriminators.

    Attributes:
        classes: Y.
        attention: sizes of the maps with self-attention; empty for none.
        size: image size in pixels, I and J: `initial_size` times a power of two.
        initial_size: rows and columns of the smallest map.
        spatial_noise: whether the noise is split into one part per position of the
            smallest map, with separate weights, so that distant positions share no
            information in a generator without attention.
        channels: channels of the largest maps; they double with each halving of the
            size, up to `channel_multiplier` times `channels`.
        channel_multiplier: maximum factor of `channels`.
        form: form of the non-local block; see `attention.spatial.NON_LOCAL`.
        key_reduction: C / width of queries and keys of the self-attention.
        value_reduction: C / width of the values of the self-attention.
        pool: whether keys and values are max-pooled over 2 x 2 positions.
        spectral: whether kernels are divided by their spectral norm.
    """

    classes: Annotated[int, SIZE]
    attention: Annotated[Sequence[int], SIZE.each()]
    size: Annotated[int, SIZE] = 128
    initial_size: Annotated[int, SIZE] = 4
    spatial_noise: bool = False
    channels: Annotated[int, SIZE] = 64
    channel_multiplier: Annotated[int, SIZE] = 16
    form: Annotated[str, Choice(NON_LOCAL)] = "embedded_gaussian"
    key_reduction: Annotated[int, SIZE] = 8
    value_reduction: Annotated[int, SIZE] = 1
    pool: bool = False
    spectral: bool = True

    @property
    def kernel_init(self) -> Callable:
        """Initializer of kernels."""
        return nn.initializers.xavier_uniform()

    @nn.nowrap
    def check(self) -> None:
        """Checks rules between the fields."""
        if self.sizes()[-1:] != [self.size]:
            sizes = ", ".join(str(self.initial_size << n) for n in (1, 2, 3))
            raise FieldError("size", self.size, f"{sizes}, ...")
        sizes = self.maps()
        if set(getattr(self, "attention", ())) - set(sizes):
            raise FieldError(
                "attention",
                tuple(self.attention),
                f"sizes of maps, which are {', '.join(map(str, sizes))}",
            )

    @nn.nowrap
    def sizes(self) -> list[int]:
        """Returns the doublings of `initial_size`, up to the size of an image."""
        return [
            self.initial_size << n
            for n in range(1, (self.size // self.initial_size).bit_length())
        ]

    @nn.nowrap
    def maps(self) -> list[int]:
        """Returns the sizes of the maps, in the order in which they are computed.

        By default those of a discriminator.
        """
        return [self.initial_size, *self.sizes()[:-1]][::-1]

    def width(self, size: int) -> int:
        """Returns `channels` times the image size / `size`, up to the maximum."""
        return self.channels * min(self.size // size, self.channel_multiplier)

    def layer(
        self, features: int, *, name: str, kernel: int = 3, scale: str = "same"
    ) -> Layer:
        """Creates a layer with the network's initializer and spectral norm."""
        return Layer(
            features,
            spectral=self.spectral,
            kernel=kernel,
            scale=scale,
            kernel_init=self.kernel_init,
            name=name,
        )

    def kernel(self, name: str, shape: Sequence[int], *, train: bool) -> jax.Array:
        """Creates a kernel with the network's initializer and spectral norm."""
        return normed_kernel(
            name, shape, spectral=self.spectral, init=self.kernel_init, train=train
        )

    def attend(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Applies self-attention to a map x if `attention` contains its size."""
        size = x.shape[1]
        if size not in self.attention:
            return x
        attended = [map_size for map_size in self.maps() if map_size in self.attention]
        return SpatialSelfAttention(
            self.form,
            key_reduction=self.key_reduction,
            value_reduction=self.value_reduction,
            pool=self.pool,
            spectral=self.spectral,
            layer=attended.index(size),
            name=f"attention_{size}",
        )(x, train=train)

    def first_map(self, noise: jax.Array, width: int, *, train: bool) -> jax.Array:
        """Maps noise [B, Z] to the first map [B, I, J, width] of a generator."""
        start = self.initial_size
        positions = (len(noise), start, start)
        if not self.spatial_noise:
            x = self.layer(start**2 * width, kernel=0, name="start")(noise, train=train)
            return x.reshape(*positions, width)
        if noise.shape[-1] % start**2:
            raise FieldError(
                "latent_size",
                noise.shape[-1],
                f"a multiple of the {start**2} positions of the first map",
            )
        parts = noise.reshape(*positions, -1)
        # No bias, which would be the same for all noise.
        shape = (*parts.shape[1:], width)
        kernel = self.kernel("start", shape, train=train)
        return jnp.einsum("bijz,ijzc->bijc", parts, kernel)

    def project(self, x: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Maps the last map [B, I, J, C] of a discriminator to its logits [B].

        w h + <e_y, h> with h = sum_ij x: Miyato and Koyama (2018), eq. 3.
        """
        h = x.sum((1, 2))  # [B, C]
        logit = self.layer(1, kernel=0, name="logit")(h, train=train)[:, 0]
        table = self.kernel("classes", (self.classes, h.shape[-1]), train=train)
        return logit + jnp.sum(h * table[label], axis=-1)
