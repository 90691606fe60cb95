"""Recurrent visual attention: RAM, Mnih et al. (2014), and DRAM, Ba et al. (2015).

A recurrent network sees a large image through a sequence of glimpses, small patches
around locations that it chooses. RAM:

    g_t = f_g(rho(x, l_t))        glimpse network
    h_t = f_h(h_{t-1}, g_t)       core
    l_{t+1} ~ N(f_l(h_t), std^2)  locator, trained by REINFORCE
    y = softmax(f_a(h_T))         classifier, trained by cross-entropy

DRAM has two recurrent layers, the upper of which starts from a coarse view of the whole
image and looks for the next object, while the lower one only sees glimpses and names
the objects, one after the other:

    l_n ~ N(E(r2_{n-1}), std^2)   emission, trained by REINFORCE; r2_0 = C(coarse x)
    g_n = G_image(x_n) G_loc(l_n) glimpse network
    r1_n = LSTM(g_n, r1_{n-1}),  r2_n = LSTM(r1_n, r2_{n-1})
    y_k = softmax(O(r1_n))        after each T glimpses

The cost of a glimpse does not depend on the size of the image.

Differs from the papers: the means of locations are limited to the image by a tanh; the
locator of RAM may have a hidden layer; in evaluation, its first location is the centre
instead of sampled. In DRAM, a tanh follows the context network; the location network is
one ReLU layer whose biases start at 1; no gradient of REINFORCE reaches its lower
layer. The paper's pair of models that read a string from both ends is not here.

Axes: B batch; I, J rows and columns of an image; C channels; T glimpses; S scales; P
rows and columns of a patch; K answers; W classes; D width of the core.
"""

import math
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.convolution import conv_general_dilated
from attention.glimpses import glimpse
from base.errors import FieldError
from base.ranges import COUNT, LAYERS, SCALE, SIZE, Range
from base.records import GlimpseRecord, SampleRecord, sow
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

    In training, the first location is uniform over the image, later ones are sampled
    and clipped to it; in evaluation, the first is the centre, later ones are the means.
    The gradient of the cross-entropy does not reach the locator, and neither locator
    nor baseline changes the core (section 3.2).

    Sows a `GlimpseRecord`; in training also a `SampleRecord` with the log-densities of
    the T - 1 sampled locations and the learned baselines.

    Attributes:
        classes: W.
        outputs: K, number of answers, all read off the same state.
        glimpses: T, number of glimpses; 7 in the paper on centred digits.
        size: P, size of a glimpse in pixels; 8 in the paper on centred digits, 12 on
            larger images.
        scales: S, number of scales of a glimpse; 1 in the paper on centred digits, 3 on
            60, 4 on 100 pixels.
        glimpse_hidden: width of the hidden layers of the glimpse network.
        glimpse_width: width of the features of a glimpse.
        hidden: D, width of the state.
        locator_hidden: width of the locator's hidden layer; 0 for none, as published.
        std: standard deviation of sampled locations, in units of half an image.
        gain: factor of the locator's last layer; 1 in the paper. With Adam, locations
            move at `gain` times the learning rate. At the full rate they may end at an
            edge, where the tanh has no gradient, before the model tells digits apart.
        policy: choice of locations: "learned"; "random" for uniform locations, also in
            evaluation, or "centre" for the centre in every glimpse: the paper's
            baselines.
    """

    classes: Annotated[int, SIZE]
    outputs: Annotated[int, LAYERS] = 1
    glimpses: Annotated[int, LAYERS] = 7
    size: Annotated[int, SIZE] = 8
    scales: Annotated[int, Range(1, 8, whole=True)] = 1
    glimpse_hidden: Annotated[int, SIZE] = 128
    glimpse_width: Annotated[int, SIZE] = 256
    hidden: Annotated[int, SIZE] = 256
    locator_hidden: Annotated[int, COUNT] = 0
    std: Annotated[float, SCALE] = 0.1
    gain: Annotated[float, SCALE] = 1.0
    policy: Literal["learned", "random", "centre"] = "learned"

    in_order: ClassVar[bool] = False

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
        self.locator = Dense(2)
        self.expected = Dense(1)  # b_t, the baseline
        self.classifier = Dense(self.outputs * self.classes)

    def __call__(self, image: jax.Array, *, train: bool) -> jax.Array:
        """Classifies images from glimpses; sows their locations.

        Args:
            image: [B, I, J, C] floating.
            train: whether locations are sampled (RNG stream "glimpse").

        Returns:
            [B, K, W] logits.
        """
        h = jnp.zeros((len(image), self.hidden))
        location, locations, samples = self._first(len(image), train=train), [], []
        for t in range(self.glimpses):
            locations.append(location)
            g = self.glimpse(image, location)  # g_t = f_g(rho(x, l_t))
            h = nn.relu(self.state(h) + self.input(g))  # h_t = f_h(h_{t-1}, g_t)
            if t + 1 < self.glimpses:
                location, sample = self._next(h, train=train)
                samples.append(sample)
        sow(self, GlimpseRecord(jnp.stack(locations, 1), self.size, self.scales))
        if train and self.policy == "learned" and samples:
            sow(self, jax.tree.map(lambda *x: jnp.stack(x, 1), *samples))
        return self.classifier(h).reshape(len(image), self.outputs, self.classes)

    def _first(self, batch: int, *, train: bool) -> jax.Array:
        """Returns l_1, [B, 2]."""
        if self.policy == "random" or (train and self.policy == "learned"):
            rng = self.make_rng("glimpse")
            return jax.random.uniform(rng, (batch, 2), minval=-1)
        return jnp.zeros((batch, 2))

    def _next(
        self, h: jax.Array, *, train: bool
    ) -> tuple[jax.Array, SampleRecord | None]:
        """Samples l_{t+1} ~ N(f_l(h_t), std^2) [B, 2], given the state h_t [B, D]."""
        if self.policy != "learned":
            return self._first(len(h), train=train), None
        x = jax.lax.stop_gradient(h)
        baseline = self.expected(x)[:, 0]  # b_t
        if self.locator_hidden:
            x = nn.relu(self.locator_layer(x))
        mean = jnp.tanh(self.gain * self.locator(x))  # f_l(h_t)
        rng = self.make_rng("glimpse") if train else None
        return sample_location(mean, self.std, baseline, rng)


def sample_location(
    mean: jax.Array, std: float, baseline: jax.Array, rng: jax.Array | None
) -> tuple[jax.Array, SampleRecord]:
    """Samples l ~ N(mean, std^2); without an `rng`, takes the mean.

    Args:
        mean: [B, 2].
        std: standard deviation.
        baseline: [B], the reward that the model expects.
        rng: PRNG key.

    Returns:
        The location [B, 2], clipped to the image and without a gradient; and its
        record, for REINFORCE.
    """
    location = mean
    if rng is not None:
        noise = jax.random.normal(rng, mean.shape)
        location = jax.lax.stop_gradient(mean + std * noise)
    record = location_record(location, mean, std, baseline)
    return jax.lax.stop_gradient(jnp.clip(location, -1, 1)), record


def location_record(
    location: jax.Array, mean: jax.Array, std: float, baseline: jax.Array
) -> SampleRecord:
    """Log-density and entropy of a location [B, 2] sampled from N(mean, std^2)."""
    z = (location - mean) / std
    log_norm = math.log(2 * math.pi * std**2)  # of two dimensions
    density = -0.5 * jnp.sum(jnp.square(z), -1) - log_norm
    return SampleRecord(density, jnp.full_like(density, 1 + log_norm), baseline)


class ConvolutionalNetwork(nn.Module):
    """Three convolutions and a dense layer: Ba et al. (2015), section 4.

    Attributes:
        channels: channels of the 5 x 5, 3 x 3 and 3 x 3 convolutions.
        width: width of the dense layer.
    """

    channels: tuple[int, int, int]
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes [B, width] from [B, P, P, any]."""
        for channels, side in zip(self.channels, (5, 3, 3), strict=True):
            x = nn.relu(nn.Conv(channels, (side, side))(x))
        return Dense(self.width)(x.reshape(len(x), -1))


class DeepRecurrentAttention(nn.Module):
    """Deep recurrent attention model (DRAM); see the module's docstring.

    The cross-entropy trains the glimpse networks, the lower layer and the classifier;
    REINFORCE the context network, the upper layer and the emission; the baseline's loss
    only the baseline. Sows a `GlimpseRecord` and, in training, a `SampleRecord`, with T
    locations for each answer, in order.

    Attributes:
        classes: W.
        outputs: K, number of answers, given in order.
        glimpses: T, number of glimpses for each answer; 3 in the paper.
        size: P, size of a glimpse in pixels; 12 in the paper on pairs of digits.
        scales: S, number of scales of a glimpse; 2 in the paper.
        channels: channels of the convolutions; (64, 64, 128) in the paper.
        width: width of the glimpse's features.
        hidden: D, width of both recurrent layers; 512 in the paper.
        context: rows and columns of the coarse image; 0 for no context network.
        std: standard deviation of sampled locations, in units of half an image.
        gain: factor of the last layer of the emission network; see
            `RecurrentVisualAttention`.
    """

    classes: Annotated[int, SIZE]
    outputs: Annotated[int, LAYERS] = 1
    glimpses: Annotated[int, LAYERS] = 3
    size: Annotated[int, SIZE] = 12
    scales: Annotated[int, Range(1, 8, whole=True)] = 2
    channels: Annotated[tuple[int, ...], SIZE.each()] = (64, 64, 128)
    width: Annotated[int, SIZE] = 512
    hidden: Annotated[int, SIZE] = 512
    context: Annotated[int, COUNT] = 12
    std: Annotated[float, SCALE] = 0.1
    gain: Annotated[float, SCALE] = 1.0

    in_order: ClassVar[bool] = True  # an answer depends on the glimpses up to it

    @nn.nowrap
    def check(self) -> None:
        """Raises a FieldError for patches without a centre, or other convolutions."""
        if self.size % 2:
            raise FieldError("size", self.size, "even")
        if len(self.channels) != 3 or {*map(type, self.channels)} != {int}:
            raise FieldError("channels", self.channels, "three numbers")

    def setup(self):
        check_fields(self)
        channels = tuple(self.channels)
        self.image_network = ConvolutionalNetwork(channels, self.width)
        # From 0, the product would be 0 at the centre, where all models begin.
        ones = nn.initializers.ones
        self.location_network = nn.Dense(self.width, bias_init=ones)
        self.lower = nn.OptimizedLSTMCell(self.hidden)
        self.upper = nn.OptimizedLSTMCell(self.hidden)
        if self.context:
            self.context_network = ConvolutionalNetwork(channels, self.hidden)
        self.emission = Dense(2)
        self.expected = Dense(1)  # b_t, the baseline
        self.classifier = Dense(self.classes)

    def __call__(self, image: jax.Array, *, train: bool) -> jax.Array:
        """Classifies the objects of images [B, I, J, C], one after the other.

        Returns:
            [B, K, W] logits.
        """
        batch = len(image)
        zeros = jnp.zeros((batch, self.hidden))
        r2 = zeros
        if self.context:
            shape = (batch, self.context, self.context, image.shape[-1])
            coarse = jax.image.resize(image, shape, "linear")
            r2 = nn.tanh(self.context_network(coarse))  # C(coarse x)
        lower, upper = (zeros, zeros), (zeros, r2)  # cell and state of each layer
        locations, samples, logits = [], [], []
        for _ in range(self.outputs):
            for _ in range(self.glimpses):
                location, sample = self._emit(r2, train=train)  # l_n ~ N(E(r2), std^2)
                locations.append(location)
                samples.append(sample)
                g = self._glimpse(image, location)  # G_image(x_n) G_loc(l_n)
                lower, r1 = self.lower(lower, g)
                upper, r2 = self.upper(upper, jax.lax.stop_gradient(r1))
            logits.append(self.classifier(r1))  # O(r1_n)
        sow(self, GlimpseRecord(jnp.stack(locations, 1), self.size, self.scales))
        if train:
            sow(self, jax.tree.map(lambda *x: jnp.stack(x, 1), *samples))
        return jnp.stack(logits, 1)

    def _glimpse(self, image: jax.Array, location: jax.Array) -> jax.Array:
        """Returns g_n [B, width], the product of what is seen and where."""
        patches = glimpse(image, location, size=self.size, scales=self.scales)
        patches = jnp.concatenate(list(jnp.moveaxis(patches, 1, 0)), -1)
        features = nn.relu(self.image_network(patches))  # the scales are channels
        return features * nn.relu(self.location_network(location))

    def _emit(self, r2: jax.Array, *, train: bool) -> tuple[jax.Array, SampleRecord]:
        """Samples l_n [B, 2], given the state r2 [B, D] of the upper layer."""
        mean = jnp.tanh(self.gain * self.emission(r2))
        baseline = self.expected(jax.lax.stop_gradient(r2))[:, 0]
        rng = self.make_rng("glimpse") if train else None
        return sample_location(mean, self.std, baseline, rng)


class ImageClassifier(nn.Module):
    """Baseline without attention: fully connected or convolutional.

    Attributes:
        classes: W.
        outputs: K.
        layers: width of each fully connected layer before the output.
        channels: channels of each 5 x 5 convolution with a stride of 2 before them; ()
            for none.
    """

    classes: Annotated[int, SIZE]
    outputs: Annotated[int, LAYERS] = 1
    layers: Annotated[tuple[int, ...], SIZE.each()] = (256, 256)
    channels: Annotated[tuple[int, ...], SIZE.each()] = ()

    in_order: ClassVar[bool] = False

    @nn.compact
    def __call__(self, image: jax.Array, *, train: bool) -> jax.Array:
        """Returns logits [B, K, W] of images [B, I, J, C]."""
        check_fields(self)
        x = image
        for channels in self.channels:
            convolution = nn.Conv(
                channels, (5, 5), strides=2, conv_general_dilated=conv_general_dilated
            )
            x = nn.relu(convolution(x))
        x = x.reshape(len(x), -1)
        for width in self.layers:
            x = nn.relu(Dense(width)(x))
        logits = Dense(self.outputs * self.classes)(x)
        return logits.reshape(len(image), self.outputs, self.classes)
