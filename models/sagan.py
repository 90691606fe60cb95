"""Generative adversarial networks with self-attention: SAGAN, and DCGAN.

Zhang, Goodfellow, Metaxas and Odena, Self-Attention GANs (2019): a generator and a
discriminator of residual blocks, with self-attention over one feature map of each
(`attention.spatial`); every layer of both has a spectral norm of 1 (Miyato et al.
2018); the class enters the generator by the scale and bias of its batch norm and the
discriminator by a projection (Miyato and Koyama 2018). The blocks are those of the
authors' code. Radford et al., DCGAN (2016): strided and transposed convolutions, batch
norm in both networks.

The attention block is y = gamma o + x (eq. 3), with gamma initially 0. `form` selects
an entry of `attention.spatial.NON_LOCAL` (Wang et al. 2018).

Differs from the papers: the authors' code pools keys and values and halves the width of
the values, the paper does neither; `pool` and `value_reduction` select. DCGAN's
generator also gets the class through its batch norm, and its discriminator ends like
SAGAN's, with a sum over positions and a projection. With `spatial_noise` and a larger
`initial_size`, receptive fields do not cover the image without attention.

Axes: B images; I, J rows and columns; C channels; Z width of the noise; Y classes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.spatial import NON_LOCAL as PLAIN_NON_LOCAL
from attention.spatial import embedded_gaussian, max_pool
from errors import FieldError
from models.layers import check_fields
from models.records import AttentionRecord
from models.spectral import Layer, Normed
from ops.softmax import masked_softmax

NON_LOCAL = PLAIN_NON_LOCAL | dict.fromkeys(
    ("gaussian", "embedded_gaussian"), partial(embedded_gaussian, align=masked_softmax)
)

BLOCKS = ("residual", "strided")


class BatchNorm(nn.Module):
    """Batch norm, optionally with a scale and bias per class: Miyato et al. (2018).

    `nn.BatchNorm` has neither classes nor a decay that grows from 0.1; with a constant
    decay, the moving statistics of a short training are dominated by its first steps.

    Attributes:
        classes: Y; 0 for one scale and bias.
        axis_name: axis of `jax.pmap` or `jax.vmap` to share batch statistics over; None
            for no sharing.
        decay: maximum decay of the moving statistics, which are used outside of
            training; see `moving`.
        epsilon: added to the variance.
    """

    classes: int = 0
    axis_name: str | None = None
    decay: float = 0.999
    epsilon: float = 1e-5

    @nn.compact
    def __call__(
        self, x: jax.Array, label: jax.Array | None, *, train: bool
    ) -> jax.Array:
        """Normalises x [B, I, J, C] for classes [B]."""
        width = x.shape[-1]
        mean = self.variable("batch_stats", "mean", jnp.zeros, (width,))
        variance = self.variable("batch_stats", "variance", jnp.ones, (width,))
        steps = self.variable("batch_stats", "steps", jnp.zeros, ())
        if train:
            count = jnp.full((1,), x.size / width, jnp.float32)
            sums = jnp.sum(x, (0, 1, 2)), jnp.sum(jnp.square(x), (0, 1, 2)), count
            if self.axis_name is not None and not self.is_initializing():
                # One vector: two sums at a time can deadlock on a CPU, each holding a
                # core that the other waits for.
                total = jax.lax.psum(jnp.concatenate(sums), self.axis_name)
                sums = jnp.split(total, (width, 2 * width))
            first, second, count = sums
            centre = first / count
            spread = jnp.maximum(second / count - jnp.square(centre), 0)
            if not self.is_initializing():
                decay = moving(steps.value, self.decay)
                for kept, new in ((mean, centre), (variance, spread)):
                    kept.value = decay * kept.value + (1 - decay) * new
                steps.value += 1
        else:
            centre, spread = mean.value, variance.value
        shape = (self.classes, width) if self.classes else (width,)
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        if self.classes:
            scale, bias = scale[label][:, None, None], bias[label][:, None, None]
        scale = scale * jax.lax.rsqrt(spread + self.epsilon)
        return x * scale + (bias - centre * scale)


def moving(steps: jax.Array, decay: float) -> jax.Array:
    """Decay of a moving average after some steps, growing from 0.1 to `decay`.

    The average covers about the last tenth of the steps until `decay` is reached, so
    that the initial value is soon forgotten.
    """
    return jnp.minimum(decay, (1 + steps) / (10 + steps))


class SelfAttention(nn.Module):
    """Self-attention over a map, y = gamma o + x: Zhang et al. (2019), eqs. 1-3.

    Attributes:
        form: a key of `attention.spatial.NON_LOCAL`.
        key_reduction: C over the width of queries and keys; the paper has 8.
        value_reduction: C over the width of values; an output layer restores C.
        pool: whether keys and values are max-pooled over 2 x 2 positions.
        spectral: see `Normed`.
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
        """[B, I, J, C] to [B, I, J, C]; sows an `AttentionRecord` [B, I, J, I', J']."""
        width = x.shape[-1]
        layer = partial(Layer, spectral=self.spectral, kernel=0, use_bias=False)
        narrow = max(width // self.key_reduction, 1)
        read = max(width // self.value_reduction, 1)
        query = key = x
        if self.form != "gaussian":  # "gaussian" compares x itself
            query = layer(narrow, name="query")(x, train=train)
            key = layer(narrow, name="key")(x, train=train)
        value = layer(read, name="value")(x, train=train)
        if self.pool:
            # `nn.max_pool` takes 7 times as long with its gradient, on two threads
            # of a CPU at [64, 16, 16, 64].
            key, value = max_pool(key), max_pool(value)
        parameters = {}
        if self.form == "concatenation":
            init = nn.initializers.normal(query.shape[-1] ** -0.5)
            parameters["w"] = self.param("w", init, (2 * query.shape[-1],))
        context, weights = NON_LOCAL[self.form](query, key, value, **parameters)
        record = AttentionRecord(
            weights, kind="spatial", layer=self.layer, queries="map", keys="map"
        )
        self.sow(*record.sown())
        gamma = self.param("gamma", nn.initializers.zeros, ())
        return x + gamma * layer(width, name="output")(context, train=train)


class _Network(nn.Module):
    """Base class of generator and discriminator.

    Attributes:
        size: I = J of an image, `initial_size` times a power of two.
        initial_size: rows and columns of the smallest map.
        spatial_noise: whether each position of the smallest map is computed from its
            own part of the noise, by its own weights, so that positions share no
            information in a generator without attention.
        channels: channels of a map of the image's size; they double with each halving
            of the size, up to `channel_multiplier` times `channels`.
        channel_multiplier: maximum factor of `channels`.
        classes: Y.
        blocks: "residual" or "strided".
        attention: sizes of the maps with self-attention; empty for none.
        form, key_reduction, value_reduction, pool: see `SelfAttention`.
        spectral: whether each layer has a spectral norm of 1.
        axis_name: see `BatchNorm`.

    Raises:
        FieldError: at the first call, for a field that is out of range.
    """

    size: int = 128
    initial_size: int = 4
    spatial_noise: bool = False
    channels: int = 64
    channel_multiplier: int = 16
    classes: int = 1000
    blocks: str = "residual"
    attention: Sequence[int] = (32,)
    form: str = "embedded_gaussian"
    key_reduction: int = 8
    value_reduction: int = 1
    pool: bool = False
    spectral: bool = True
    axis_name: str | None = None

    positive: ClassVar[Sequence[str]] = (
        "initial_size",
        "channels",
        "channel_multiplier",
        "classes",
        "key_reduction",
        "value_reduction",
    )

    def check(self) -> None:
        """Checks the fields; see `_Network`."""
        check_fields(self, {"blocks": BLOCKS, "form": tuple(NON_LOCAL)}, self.positive)
        if self.sizes()[-1:] != [self.size]:
            sizes = ", ".join(str(self.initial_size << n) for n in (1, 2, 3))
            raise FieldError("size", self.size, f"{sizes}, ...")
        sizes = self.maps()
        if set(self.attention) - set(sizes):
            raise FieldError(
                "attention",
                tuple(self.attention),
                f"sizes of maps, which are {', '.join(map(str, sizes))}",
            )

    def sizes(self) -> list[int]:
        """Twice `initial_size`, and so on, up to the size of an image."""
        return [
            self.initial_size << n
            for n in range(1, (self.size // self.initial_size).bit_length())
        ]

    def maps(self) -> list[int]:
        """Sizes of the maps, in the order in which they are computed."""
        raise NotImplementedError

    def width(self, size: int) -> int:
        """Channels of the map of this size."""
        return self.channels * min(self.size // size, self.channel_multiplier)

    def attend(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Applies self-attention if `attention` has the size of the map."""
        size = x.shape[1]
        if size not in self.attention:
            return x
        attending = [map_size for map_size in self.maps() if map_size in self.attention]
        return SelfAttention(
            self.form,
            key_reduction=self.key_reduction,
            value_reduction=self.value_reduction,
            pool=self.pool,
            spectral=self.spectral,
            layer=attending.index(size),
            name=f"attention_{size}",
        )(x, train=train)

    @property
    def kernel_init(self) -> Callable:
        """Initializer of kernels: Glorot's, or DCGAN's normal."""
        if self.blocks == "residual":
            return nn.initializers.xavier_uniform()
        return nn.initializers.normal(0.02)


class Generator(_Network):
    """Generator; see `_Network` and the module's docstring."""

    @nn.compact
    def __call__(self, noise: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Generates images.

        Args:
            noise: [B, Z]; if `spatial_noise`, split into one part for each position.
            label: int [B], below Y.
            train: whether batch norm uses and updates the statistics with this batch,
                and spectral norms make a power iteration.

        Returns:
            [B, I, J, 3] in [-1, 1].
        """
        self.check()
        common = dict(spectral=self.spectral, kernel_init=self.kernel_init)
        strided = self.blocks == "strided"
        width, start = self._map_width, self.initial_size
        positions = (len(noise), start, start)
        if self.spatial_noise:
            if noise.shape[-1] % start**2:
                raise FieldError(
                    "noise",
                    noise.shape[-1],
                    f"a multiple of the {start**2} positions of the first map",
                )
            parts = noise.reshape(*positions, -1)
            # Separate weights for each position, and no bias: it would be an image
            # shared by all positions.
            shape = (*parts.shape[1:], width(start))
            kernel = Normed(shape, self.spectral, self.kernel_init, name="start")
            x = jnp.einsum("bijz,ijzc->bijc", parts, kernel(train=train))
        else:
            x = Layer(start**2 * width(start), kernel=0, name="start", **common)(
                noise, train=train
            ).reshape(*positions, -1)
        for size in self.maps():
            x = self._widen(x, label, width(size), f"to_{size}", common, train)
            x = self.attend(x, train=train)
        x = nn.relu(self._norm("norm", not strided)(x, label, train=train))
        window = {"kernel": 4, "scale": "double"} if strided else {}
        x = Layer(3, name="picture", **window, **common)(x, train=train)
        return jnp.tanh(x)

    def maps(self) -> list[int]:
        """See `_Network`; DCGAN's last transposed convolution outputs the image."""
        return self.sizes()[: -1 if self.blocks == "strided" else None]

    def _map_width(self, size: int) -> int:
        return self.width(2 * size if self.blocks == "strided" else size)

    def _norm(self, name: str, plain: bool = False) -> BatchNorm:
        classes = 0 if plain else self.classes
        return BatchNorm(classes, self.axis_name, name=name)

    def _widen(
        self,
        x: jax.Array,
        label: jax.Array,
        width: int,
        name: str,
        common: Mapping[str, Any],
        train: bool,
    ) -> jax.Array:
        """Doubles the size of a map."""
        first = nn.relu(self._norm(f"{name}_norm_1")(x, label, train=train))
        if self.blocks == "strided":
            window = {"kernel": 4, "scale": "double"}
            return Layer(width, name=name, **window, **common)(first, train=train)
        conv = Layer(width, scale="double", name=f"{name}_conv_1", **common)
        y = conv(first, train=train)
        y = nn.relu(self._norm(f"{name}_norm_2")(y, label, train=train))
        y = Layer(width, name=f"{name}_conv_2", **common)(y, train=train)
        # The product comes before upsampling, for a quarter of the positions.
        skip = Layer(width, kernel=0, name=f"{name}_skip", **common)(x, train=train)
        return y + jnp.repeat(jnp.repeat(skip, 2, axis=1), 2, axis=2)


class Discriminator(_Network):
    """Discriminator; see `_Network` and the module's docstring."""

    @nn.compact
    def __call__(self, x: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Logits [B] of images [B, I, J, 3] in [-1, 1] with classes [B].

        A projection discriminator, w h + <e_y, h>: Miyato and Koyama (2018), eq. 3.
        """
        self.check()
        common = dict(spectral=self.spectral, kernel_init=self.kernel_init)
        for size in self.maps():
            x = self._narrow(x, self.width(2 * size), f"to_{size}", common, train)
            x = self.attend(x, train=train)
        if self.blocks == "residual":
            x = self._narrow(x, x.shape[-1], "last", common, train, pool=False)
            x = nn.relu(x)
        hidden = x.sum((1, 2))  # [B, C]
        logit = Layer(1, kernel=0, name="logit", **common)(hidden, train=train)[:, 0]
        shape = (self.classes, hidden.shape[-1])
        table = Normed(shape, self.spectral, self.kernel_init, name="classes")(
            train=train
        )
        return logit + jnp.sum(hidden * table[label], axis=-1)

    def maps(self) -> list[int]:
        """See `_Network`."""
        return [self.initial_size, *self.sizes()[:-1]][::-1]

    def _narrow(
        self,
        x: jax.Array,
        width: int,
        name: str,
        common: Mapping[str, Any],
        train: bool,
        pool: bool = True,
    ) -> jax.Array:
        """Halves the size of a map, if `pool`."""
        first = x.shape[-1] == 3
        if self.blocks == "strided":
            window = {"kernel": 4, "scale": "half"}
            x = Layer(width, name=name, **window, **common)(x, train=train)
            if not first and not self.spectral:
                norm = BatchNorm(0, self.axis_name, name=f"{name}_norm")
                x = norm(x, None, train=train)
            return nn.leaky_relu(x, 0.2)
        y = x if first else nn.relu(x)
        y = nn.relu(Layer(width, name=f"{name}_conv_1", **common)(y, train=train))
        scale = "half" if pool else "same"
        y = Layer(width, scale=scale, name=f"{name}_conv_2", **common)(y, train=train)
        if not pool:
            return x + y
        skip = Layer(width, kernel=0, name=f"{name}_skip", **common)
        return y + skip(_mean(x), train=train)


def _mean(x: jax.Array) -> jax.Array:
    """Mean pooling over 2 x 2 positions: [B, I, J, C] to [B, I / 2, J / 2, C]."""
    batch, rows, columns, width = x.shape
    blocks = x.reshape(batch, rows // 2, 2, columns // 2, 2, width)
    return blocks.mean((2, 4))


def gammas(params: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Returns |gamma| of each attention layer, as gamma_<network>_<size>.

    Args:
        params: parameters of "generator" and "discriminator".
    """
    return {
        f"gamma_{network}_{block.removeprefix('attention_')}": abs(values["gamma"])
        for network, blocks in params.items()
        for block, values in blocks.items()
        if "gamma" in values
    }
