"""Generative adversarial networks with attention: SAGAN, and DCGAN before it.

Zhang, Goodfellow, Metaxas and Odena, Self-Attention GANs (2019): a generator and a
discriminator of residual blocks, in each of which one map attends to itself
(`attention.spatial`); every layer of both has a spectral norm of 1 (Miyato et al.
2018); classes enter the generator by the scale and bias of its batch norm and the
discriminator by a projection (Miyato and Koyama 2018). The blocks are those of the
authors' code. Radford et al., DCGAN (2016): strided convolutions, forwards and
backwards, batch norm in both.

The attention block adds gamma times what it reads, gamma from 0: y = gamma o + x (eq.
3). `form` names any row of `attention.spatial.NON_LOCAL` (Wang et al. 2018).

What differs from the papers: the authors' code pools keys and values and halves the
width of the values, the paper does neither; `pool` and `value_shrink` say which.
DCGAN's generator gets the class in its batch norm, too, and its discriminator ends as
SAGAN's does, with a sum over places and a projection. `start` and `local` make networks
that see no further than their convolutions reach.

Axes: B pictures; I, J rows and columns; C channels; Z width of the noise; Y classes.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.spatial import NON_LOCAL, max_pool
from models.convolutions import convolve, double, halve, widen
from models.layers import check_fields

BODIES = ("residual", "strided")
_TINY = 1e-12


def spectral_norm(kernel: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One step towards the largest singular value: Miyato et al. (2018), algorithm 1.

    Args:
        kernel: [..., C], a matrix of C columns.
        u: [C] of length 1, the last estimate of the right singular vector.

    Returns:
        The estimate of the norm, a scalar with a gradient to `kernel`, and the new u,
        without one.
    """
    matrix = kernel.reshape(-1, kernel.shape[-1])
    fixed = jax.lax.stop_gradient(matrix)
    v = fixed @ u
    v /= jnp.maximum(jnp.linalg.norm(v), _TINY)
    u = v @ fixed
    u /= jnp.maximum(jnp.linalg.norm(u), _TINY)
    return v @ matrix @ u, u


class Normed(nn.Module):
    """A kernel divided by its spectral norm, where `spectral`; u is kept in "spectral".

    The power iteration makes a step where `train`.

    Attributes:
        shape: of the kernel, its outputs last.
        spectral: whether it is divided.
        kernel_init: of the kernel.
    """

    shape: tuple[int, ...]
    spectral: bool
    kernel_init: Callable

    @nn.compact
    def __call__(self, *, train: bool) -> jax.Array:
        kernel = self.param("kernel", self.kernel_init, self.shape)
        if not self.spectral:
            return kernel

        def start():
            u = jax.random.normal(self.make_rng("params"), self.shape[-1:])
            return u / jnp.linalg.norm(u)

        u = self.variable("spectral", "u", start)
        norm, new = spectral_norm(kernel, u.value)
        if train and not self.is_initializing():
            u.value = new
        return kernel / jnp.maximum(norm, _TINY)


class Layer(nn.Module):
    """A convolution, or a product with each place or vector; with a bias by field.

    Attributes:
        features: channels that come out.
        spectral: see `Normed`.
        kernel: rows and columns of the kernel: 3, 4, or 0 for a product.
        scale: "same", "half" or "double" the rows and columns. A kernel of 4 is the
            strided convolution that does so; one of 3 is followed by the mean of 2 x 2
            places, or preceded by writing each place four times.
        kernel_init: of the kernel.
        use_bias: whether there is one.
    """

    features: int
    spectral: bool
    kernel: int = 3
    scale: str = "same"
    kernel_init: Callable = nn.initializers.xavier_uniform()
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        window = (self.kernel, self.kernel) if self.kernel else ()
        shape = (*window, x.shape[-1], self.features)
        kernel = Normed(shape, self.spectral, self.kernel_init, name="normed")(
            train=train
        )
        if not window:
            x = x @ kernel
        elif self.scale == "same":
            x = convolve(x, kernel)
        else:
            factor = 0.25 if self.scale == "half" else 1.0
            wide = kernel if self.kernel == 4 else factor * widen(kernel)
            x = (halve if self.scale == "half" else double)(x, wide)
        if not self.use_bias:
            return x
        return x + self.param("bias", nn.initializers.zeros, (self.features,))


class BatchNorm(nn.Module):
    """Batch norm whose scale and bias are the class's, or of all: Miyato et al. (2018).

    Attributes:
        classes: Y; 0 for one scale and bias.
        total: sums an array over the devices that share a batch.
        decay: of the moving statistics, which are used outside of training; less in
            the first steps.
    """

    classes: int
    total: Callable[[Any], Any]
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
            count = jnp.asarray(x.size / width, jnp.float32)
            sums = jnp.sum(x, (0, 1, 2)), jnp.sum(jnp.square(x), (0, 1, 2)), count
            first, second, count = self.total(sums)
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
    """The decay of a moving average after some steps: of about the last tenth of them.

    Not above `decay`; so what was there before the first step is soon forgotten.
    """
    return jnp.minimum(decay, (1 + steps) / (10 + steps))


class SelfAttention(nn.Module):
    """y = gamma o + x, o what each place reads of all: Zhang et al. (2019), eqs. 1-3.

    Attributes:
        form: a key of `attention.spatial.NON_LOCAL`.
        shrink: C over the width of queries and keys; the paper has 8.
        value_shrink: C over the width of what is read, before it is C wide again.
        pool: whether keys and values are the highest of 2 x 2 places.
        spectral: see `Normed`.
    """

    form: str
    shrink: int
    value_shrink: int
    pool: bool
    spectral: bool

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Reads x [B, I, J, C]; sows the weights [B, I, J, K, L] into "attention"."""
        width = x.shape[-1]
        common = dict(spectral=self.spectral, kernel=0, use_bias=False)
        layer = lambda features, name: Layer(features, name=name, **common)  # noqa: E731
        narrow = max(width // self.shrink, 1)
        read = max(width // self.value_shrink, 1)
        query = key = x
        if self.form != "gaussian":  # which compares x itself
            query = layer(narrow, "query")(x, train=train)
            key = layer(narrow, "key")(x, train=train)
        value = layer(read, "value")(x, train=train)
        if self.pool:
            key, value = max_pool(key), max_pool(value)
        parameters = {}
        if self.form == "concatenation":
            init = nn.initializers.normal(query.shape[-1] ** -0.5)
            parameters["w"] = self.param("w", init, (2 * query.shape[-1],))
        found = NON_LOCAL[self.form](query, key, value, **parameters)
        self.sow("attention", "weights", found.weights)
        gamma = self.param("gamma", nn.initializers.zeros, ())
        return x + gamma * layer(width, "output")(found.context, train=train)


class _Network(nn.Module):
    """What generator and discriminator share.

    Attributes:
        size: I = J of a picture, `start` times a power of two.
        start: rows and columns of the smallest map.
        local: whether each place of the smallest map is made of noise of its own, by
            weights of its own, so that a generator without attention has nothing that
            all places know.
        channels: of the widest picture's map; those of half the size have twice as
            many, up to `widest` times.
        widest: how many times.
        classes: Y.
        body: "residual" or "strided".
        attention: sizes of the maps that attend to themselves; none of them for none.
        form, shrink, value_shrink, pool: see `SelfAttention`.
        spectral: whether each layer has a spectral norm of 1.
        total: see `BatchNorm`.

    Raises:
        ValueError: when it is built, for a field that is out of range.
    """

    size: int
    start: int
    local: bool
    channels: int
    widest: int
    classes: int
    body: str
    attention: tuple[int, ...]
    form: str
    shrink: int
    value_shrink: int
    pool: bool
    spectral: bool
    total: Callable[[Any], Any] = lambda x: x

    positive: ClassVar[tuple[str, ...]] = (
        *("start", "channels", "widest", "classes", "shrink", "value_shrink"),
    )

    def check(self) -> None:
        """Checks the fields; see `_Network`."""
        check_fields(self, {"body": BODIES, "form": tuple(NON_LOCAL)}, self.positive)
        if self.sizes()[-1:] != [self.size]:
            some = ", ".join(str(self.start << n) for n in (1, 2, 3))
            raise ValueError(f"size is {self.size}: must be {some}, ...")
        sizes = self.maps()
        if set(self.attention) - set(sizes):
            raise ValueError(
                f"attention is {self.attention}: must be sizes of maps, which are "
                f"{', '.join(map(str, sizes))}"
            )

    def sizes(self) -> list[int]:
        """Twice `start`, and so on, as far as they are no larger than a picture."""
        return [
            self.start << n for n in range(1, (self.size // self.start).bit_length())
        ]

    def maps(self) -> list[int]:
        """Sizes of the maps, in the order in which they are made."""
        raise NotImplementedError

    def width(self, size: int) -> int:
        """Channels of the map of this size."""
        return self.channels * min(self.size // size, self.widest)

    def attend(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Attends where the map is of such a size."""
        if x.shape[1] not in self.attention:
            return x
        return SelfAttention(
            *(self.form, self.shrink, self.value_shrink, self.pool, self.spectral),
            name=f"attention_{x.shape[1]}",
        )(x, train=train)

    @property
    def kernel_init(self) -> Callable:
        """Of kernels: Glorot's, or DCGAN's normal."""
        if self.body == "residual":
            return nn.initializers.xavier_uniform()
        return nn.initializers.normal(0.02)


class Generator(_Network):
    """Makes pictures of noise; see `_Network` and the module's docstring."""

    @nn.compact
    def __call__(self, noise: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Makes a picture of each row.

        Args:
            noise: [B, Z]; where `local`, each place has a part of it.
            label: int [B], below Y.
            train: whether batch norm is that of this batch, and kept, and the estimates
                of spectral norms move.

        Returns:
            [B, I, J, 3] in [-1, 1].
        """
        self.check()
        common = dict(spectral=self.spectral, kernel_init=self.kernel_init)
        strided = self.body == "strided"
        width, start = self._map_width, self.start
        places = (len(noise), start, start)
        if self.local:
            if noise.shape[-1] % start**2:
                raise ValueError(
                    f"noise is {noise.shape[-1]}: must be a multiple of the {start**2} "
                    "places of the first map"
                )
            own = noise.reshape(*places, -1)
            # Weights of its own for each place, and no bias: that would be a picture
            # without any noise.
            shape = (*own.shape[1:], width(start))
            kernel = Normed(shape, self.spectral, self.kernel_init, name="start")
            x = jnp.einsum("bijz,ijzc->bijc", own, kernel(train=train))
        else:
            x = Layer(start**2 * width(start), kernel=0, name="start", **common)(
                noise, train=train
            ).reshape(*places, -1)
        for size in self.maps():
            x = self._widen(x, label, width(size), f"to_{size}", common, train)
            x = self.attend(x, train=train)
        x = nn.relu(self._norm("norm", not strided)(x, label, train=train))
        window = {"kernel": 4, "scale": "double"} if strided else {}
        x = Layer(3, name="picture", **window, **common)(x, train=train)
        return jnp.tanh(x)

    def maps(self) -> list[int]:
        """See `_Network`; DCGAN's last transposed convolution makes the picture."""
        return self.sizes()[: -1 if self.body == "strided" else None]

    def _map_width(self, size: int) -> int:
        return self.width(2 * size if self.body == "strided" else size)

    def _norm(self, name: str, plain: bool = False) -> BatchNorm:
        classes = 0 if plain else self.classes
        return BatchNorm(classes, self.total, name=name)

    def _widen(self, x, label, width, name, common, train):
        """A map of twice the size."""
        first = nn.relu(self._norm(f"{name}_norm_1")(x, label, train=train))
        if self.body == "strided":
            window = {"kernel": 4, "scale": "double"}
            return Layer(width, name=name, **window, **common)(first, train=train)
        conv = Layer(width, scale="double", name=f"{name}_conv_1", **common)
        y = conv(first, train=train)
        y = nn.relu(self._norm(f"{name}_norm_2")(y, label, train=train))
        y = Layer(width, name=f"{name}_conv_2", **common)(y, train=train)
        # A product with each place before it is written four times.
        skip = Layer(width, kernel=0, name=f"{name}_skip", **common)(x, train=train)
        return y + jnp.repeat(jnp.repeat(skip, 2, axis=1), 2, axis=2)


class Discriminator(_Network):
    """Tells pictures from those of a generator; see `_Network`."""

    @nn.compact
    def __call__(self, x: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Scores pictures [B, I, J, 3] in [-1, 1] of classes [B]: logits [B].

        The logit is linear in what the class is embedded as: w h + <e_y, h>, Miyato and
        Koyama (2018), eq. 3.
        """
        self.check()
        common = dict(spectral=self.spectral, kernel_init=self.kernel_init)
        for size in self.maps():
            x = self._narrow(x, self.width(2 * size), f"to_{size}", common, train)
            x = self.attend(x, train=train)
        if self.body == "residual":
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
        return [self.start, *self.sizes()[:-1]][::-1]

    def _narrow(self, x, width, name, common, train, pool=True):
        """A map of half the size, where `pool`."""
        first = x.shape[-1] == 3
        if self.body == "strided":
            window = {"kernel": 4, "scale": "half"}
            x = Layer(width, name=name, **window, **common)(x, train=train)
            if not first and not self.spectral:
                norm = BatchNorm(0, self.total, name=f"{name}_norm")
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
    """[B, I, J, C] to [B, I / 2, J / 2, C], the mean of each four places."""
    batch, rows, columns, width = x.shape
    blocks = x.reshape(batch, rows // 2, 2, columns // 2, 2, width)
    return blocks.mean((2, 4))
