"""Recurrent models of visual attention: RAM, Mnih et al. (2014).

A recurrent network sees a large image through a sequence of glimpses, small patches
around locations that it chooses:

    g_t = f_g(rho(x, l_t))        glimpse network
    h_t = f_h(h_{t-1}, g_t)       core
    l_{t+1} ~ N(f_l(h_t), std^2)  locator, trained by REINFORCE
    y = softmax(f_a(h_T))         classifier, trained by cross-entropy

The cost does not depend on the size of the image.

Differs from the paper: the locator may have a hidden layer, and its mean is limited to
the image by a tanh; in evaluation, the first location is the centre instead of drawn.

Axes: B batch; I, J rows and columns of an image; C channels; T glimpses; S scales; P
rows and columns of a patch; W classes; D width of the core.
"""

import math
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.glimpse import glimpse
from base.errors import FieldError
from base.ranges import COUNT, LAYERS, SCALE, SIZE, Range
from base.records import DrawRecord, GlimpseRecord
from models.layers import Dense, check_fields


class GlimpseNetwork(nn.Module):
    """Features of a glimpse, f_g: Mnih et al. (2014), section 3.1, figure 1B.

    Attributes:
        size: P.
        scales: S.
        hidden: width of the hidden layers of what and where, 128 in the paper.
        width: width of the features, 256 in the paper.
    """

    size: int
    scales: int
    hidden: int
    width: int

    @nn.compact
    def __call__(self, image: jax.Array, location: jax.Array) -> jax.Array:
        """Computes features [B, width] of image [B, I, J, C] at location [B, 2]."""
        patches = glimpse(image, location, size=self.size, scales=self.scales)
        patches = patches.reshape(len(image), -1)
        h_g = nn.relu(Dense(self.hidden, name="patch")(patches))
        h_l = nn.relu(Dense(self.hidden, name="location")(location))
        features = Dense(self.width, name="what")(h_g)
        return nn.relu(features + Dense(self.width, name="where")(h_l))


class RecurrentVisualAttention(nn.Module):
    """Recurrent attention model (RAM); see the module's docstring.

    In training, the first location is uniform over the image, later ones are drawn and
    clipped to it; in evaluation, the first is the centre, and later ones are the means.
    The gradient of the cross-entropy does not reach the locator, and neither locator
    nor baseline changes the core (section 3.2).

    Sows a `GlimpseRecord`; in training also a `DrawRecord` with the log-densities of
    the T - 1 drawn locations and the learned baselines.

    Attributes:
        classes: W.
        glimpses: T; 7 in the paper on centred digits.
        size: P; 8 in the paper on centred digits, 12 on larger images.
        scales: S; 1 in the paper on centred digits, 3 on 60, 4 on 100 pixels.
        glimpse_hidden: see `GlimpseNetwork.hidden`.
        glimpse_width: see `GlimpseNetwork.width`.
        hidden: D.
        locator_hidden: width of the locator's hidden layer; 0 for none, as published.
        std: standard deviation of drawn locations, in units of half an image.
        policy: "learned"; "random" for uniform locations, also in evaluation, or
            "centre" for the centre in every glimpse: the paper's baselines.
    """

    classes: Annotated[int, SIZE]
    glimpses: Annotated[int, LAYERS] = 7
    size: Annotated[int, SIZE] = 8
    scales: Annotated[int, Range(1, 8, whole=True)] = 1
    glimpse_hidden: Annotated[int, SIZE] = 128
    glimpse_width: Annotated[int, SIZE] = 256
    hidden: Annotated[int, SIZE] = 256
    locator_hidden: Annotated[int, COUNT] = 0
    std: Annotated[float, SCALE] = 0.1
    policy: Literal["learned", "random", "centre"] = "learned"

    draws: ClassVar[bool] = True  # needs REINFORCE to train

    @nn.nowrap
    def check(self) -> None:
        """Raises a FieldError for patches without a centre."""
        if self.size % 2:
            raise FieldError("size", self.size, "even")

    def setup(self):
        check_fields(self)
        self.glimpse = GlimpseNetwork(
            self.size, self.scales, self.glimpse_hidden, self.glimpse_width
        )
        self.input, self.state = Dense(self.hidden), Dense(self.hidden, use_bias=False)
        if self.locator_hidden:
            self.locator_layer = Dense(self.locator_hidden)
        self.locator, self.expected = Dense(2), Dense(1)
        self.classifier = Dense(self.classes)

    def __call__(self, image: jax.Array, *, train: bool) -> jax.Array:
        """Looks at images; sows where.

        Args:
            image: [B, I, J, C] floating.
            train: whether locations are drawn (RNG stream "glimpse").

        Returns:
            [B, W] logits.
        """
        h = jnp.zeros((len(image), self.hidden))
        locations, draws = [self._first(len(image), train=train)], []
        for t in range(self.glimpses):
            g = self.glimpse(image, locations[t])
            h = nn.relu(self.state(h) + self.input(g))  # h_t = f_h(h_{t-1}, g_t)
            if t + 1 < self.glimpses:
                location, draw = self._next(h, train=train)
                locations.append(location)
                draws.append(draw)
        record = GlimpseRecord(jnp.stack(locations, 1), self.size, self.scales)
        self.sow(*record.sown())
        if train and self.policy == "learned" and draws:
            self.sow(*jax.tree.map(lambda *x: jnp.stack(x, 1), *draws).sown())
        return self.classifier(h)

    def _first(self, batch: int, *, train: bool) -> jax.Array:
        """Returns l_1, [B, 2]."""
        if self.policy == "random" or (train and self.policy == "learned"):
            return self._uniform(batch)
        return jnp.zeros((batch, 2))

    def _uniform(self, batch: int) -> jax.Array:
        return jax.random.uniform(self.make_rng("glimpse"), (batch, 2), minval=-1)

    def _next(self, h: jax.Array, *, train: bool) -> tuple[jax.Array, DrawRecord]:
        """Returns l_{t+1} [B, 2] and its draw, of the state h_t [B, D]."""
        x = jax.lax.stop_gradient(h)
        baseline = self.expected(x)[:, 0]  # b_t
        if self.locator_hidden:
            x = nn.relu(self.locator_layer(x))
        mean = jnp.tanh(self.locator(x))
        location = mean
        if train and self.policy == "learned":
            noise = jax.random.normal(self.make_rng("glimpse"), mean.shape)
            location = jax.lax.stop_gradient(mean + self.std * noise)
        draw = gaussian_draw(location, mean, self.std, baseline)
        if self.policy != "learned":
            location = self._first(len(h), train=train)
        return jax.lax.stop_gradient(jnp.clip(location, -1, 1)), draw


def gaussian_draw(
    location: jax.Array, mean: jax.Array, std: float, baseline: jax.Array
) -> DrawRecord:
    """Returns the draw of a location [B, 2] from N(mean, std^2)."""
    z = (location - mean) / std
    log_norm = math.log(2 * math.pi * std**2)  # of two dimensions
    density = -0.5 * jnp.sum(jnp.square(z), -1) - log_norm
    return DrawRecord(density, jnp.full_like(density, 1 + log_norm), baseline)


class ImageClassifier(nn.Module):
    """Baseline without attention: fully connected or convolutional.

    Attributes:
        classes: W.
        layers: width of each fully connected layer before the output.
        channels: channels of each 5 x 5 convolution with a stride of 2 before them; ()
            for none.
    """

    classes: Annotated[int, SIZE]
    layers: Annotated[tuple[int, ...], SIZE.each()] = (256, 256)
    channels: Annotated[tuple[int, ...], SIZE.each()] = ()

    draws: ClassVar[bool] = False

    @nn.compact
    def __call__(self, image: jax.Array, *, train: bool) -> jax.Array:
        """Returns logits [B, W] of images [B, I, J, C]."""
        check_fields(self)
        x = image
        for channels in self.channels:
            x = nn.relu(nn.Conv(channels, (5, 5), strides=2)(x))
        x = x.reshape(len(x), -1)
        for width in self.layers:
            x = nn.relu(Dense(width)(x))
        return Dense(self.classes)(x)
