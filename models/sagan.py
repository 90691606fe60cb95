"""SAGAN, a generative adversarial network with self-attention: Zhang et al. (2019).

The generator and the discriminator consist of residual blocks, with self-attention over
feature maps of chosen sizes (`attention.spatial`). Every layer of both is divided by an
estimate of its spectral norm (Miyato et al. 2018). The class enters the generator by
the scale and bias of its batch norm and the discriminator by a projection (Miyato and
Koyama 2018). The residual blocks follow the authors' code.

The attention block is y = gamma o + x (eq. 3), with gamma initially 0. `form` selects
an entry of `attention.spatial.NON_LOCAL` (Wang et al. 2018).

Differs from the paper: `pool` and `value_reduction` optionally pool keys and values
and narrow the values, as the authors' code does (by 2) and the paper does not. With
`spatial_noise` and a larger `initial_size`, the receptive fields of a network without
attention do not cover the image.

Axes: B images; I, J rows and columns; K, L rows and columns of the keys' map; C
channels; Z width of the latent noise; Y classes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.declaration import ScoreParts
from attention.spatial import NON_LOCAL, max_pool
from base.devices import data_axis
from base.errors import FieldError
from base.ranges import SIZE, Choice
from base.records import ScoreDetails
from models.layers import check_fields
from models.recording import score_details, sow_attention
from models.spectral import Layer, normed_kernel


class BatchNorm(nn.Module):
    """Batch norm, optionally with a scale and bias per class (Miyato and Koyama 2018).

    `nn.BatchNorm` normalises; it has neither classes nor a decay that grows from 0.1.
    With a constant decay, the first steps of a short training dominate its moving
    statistics. Batch statistics are averaged over the axis of
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
        layer = partial(Layer, spectral=self.spectral, kernel=0, use_bias=False)
        key_width = max(width // self.key_reduction, 1)
        value_width = max(width // self.value_reduction, 1)
        query = key = x
        if self.form != "gaussian":  # "gaussian" compares x itself
            query = layer(key_width, name="query")(x, train=train)  # g(x)
            key = layer(key_width, name="key")(x, train=train)  # f(x)
        value = layer(value_width, name="value")(x, train=train)  # h(x)
        if self.pool:
            # At [64, 16, 16, 64], `nn.max_pool` and its gradient take 7 times as long,
            # on two threads of a CPU.
            key, value = max_pool(key), max_pool(value)
        parameters = {}
        if self.form == "concatenation":
            init = nn.initializers.normal(query.shape[-1] ** -0.5)
            parameters["w"] = self.param("w", init, (2 * query.shape[-1],))
        context, weights = NON_LOCAL[self.form](query, key, value, **parameters)

        def details() -> ScoreDetails | None:
            if self.form not in ("gaussian", "embedded_gaussian"):
                return None  # the weights are not a softmax
            rows = (x.reshape(len(x), 1, -1, x.shape[-1]) for x in (query, key))
            return score_details(ScoreParts(*rows))

        sow_attention(
            self,
            weights,
            details,
            kind="spatial",
            layer=self.layer,
            queries="map",
            keys="map",
        )
        gamma = self.param("gamma", nn.initializers.zeros, ())
        o = layer(width, name="output")(context, train=train)  # v(...)
        return gamma * o + x


class Network(nn.Module):
    """Base class of the generators and discriminators of this module and `dcgan.py`.

    Attributes:
        classes: Y.
        attention: sizes of the maps with self-attention; empty for none.
        size: image size in pixels, I and J: `initial_size` times a power of two.
        initial_size: rows and columns of the smallest map.
        spatial_noise: whether the noise is split into one part per position of the
            smallest map, with separate weights, so that distant positions share no
            information in a generator without attention.
        channels: channels of a map of the image's size; they double with each halving
            of the size, up to `channel_multiplier` times `channels`.
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
        """Checks rules between the fields; see `Network`."""
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
        """Returns the channels of a map of this size."""
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
        norm_1 = BatchNorm(self.classes, name=f"{name}_norm_1")
        norm_2 = BatchNorm(self.classes, name=f"{name}_norm_2")
        conv_1 = self.layer(width, scale="double", name=f"{name}_conv_1")
        conv_2 = self.layer(width, name=f"{name}_conv_2")
        skip = self.layer(width, kernel=0, name=f"{name}_skip")
        y = conv_1(nn.relu(norm_1(x, label, train=train)), train=train)
        y = conv_2(nn.relu(norm_2(y, label, train=train)), train=train)
        # Before upsampling, the 1 x 1 layer has a quarter of the positions.
        skipped = skip(x, train=train)
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
        conv_1 = self.layer(width, name=f"{name}_conv_1")
        conv_2 = self.layer(width, scale="half", name=f"{name}_conv_2")
        skip = self.layer(width, kernel=0, name=f"{name}_skip")
        y = nn.relu(x) if activate else x  # not the image
        y = conv_2(nn.relu(conv_1(y, train=train)), train=train)
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
