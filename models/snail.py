"""SNAIL, the simple neural attentive learner: Mishra et al. (2018), section 3.

A learner that reads a sequence of experience. Causal convolutions gather what is
recent, and causal attention looks up single steps anywhere in the past. Each block adds
its output to the channels of its input. Section 3.1 of the paper:

    DenseBlock(x, R, D):     x_f, x_g = causal convolutions of x, kernel 2, dilation R
                             [x, tanh(x_f) * sigmoid(x_g)]
    TCBlock(x, T, D):        DenseBlocks of dilation 1, 2, 4, ..., until all T steps
                             are seen
    AttentionBlock(x, K, V): q, k, v = affine(x)
                             [x, causal_softmax(q k^T / sqrt(K)) v]

Differs from the paper: its dilations are 2^i for i = 1, ..., ceil(log2 T), with which
step t never sees step t - 1, nor any other odd lag. Here they are 2^(i - 1), so that
the receptive field, 1 plus their sum, is 2^ceil(log2 T) >= T.

Axes: B batch; T steps; C channels; R dilation; D filters; K, V width of a key and a
value of attention.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import attend
from attention.fast.linear import linear
from attention.masks import causal_mask
from base.errors import FieldError
from models.attention import Score
from models.layers import Dense
from models.recording import score_details, sow_attention

# Published stack of few-shot classification: K x V of attention, D of convolutions.
FEW_SHOT = ((64, 32), 128, (256, 128), 128, (512, 256))


class Past(NamedTuple):
    """Steps that were read, for reading the next one alone.

    Attributes:
        t: int32 [B], their number.
        output: [B, T, C'] of `Snail`, 0 from step t on; the input of a block is its
            first channels.
        keys: [B, T, K] of each attention block.
        values: [B, T, V] of each attention block.
    """

    t: jax.Array
    output: jax.Array
    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]

    def before(self, width: int, lag: int) -> jax.Array:
        """Returns the input [B, 1, C = width] of the step `lag` steps before step t."""
        at = jnp.maximum(self.t - lag, 0)[:, None, None]
        earlier = jnp.take_along_axis(self.output[..., :width], at, 1)
        return jnp.where((self.t >= lag)[:, None, None], earlier, 0)

    def append(self, steps: jax.Array, x: jax.Array) -> jax.Array:
        """Returns [B, T, C] with x [B, 1, C] as step t."""
        return steps.at[jnp.arange(len(x)), self.t].set(x[:, 0])


class DenseBlock(nn.Module):
    """DenseBlock, a gated causal convolution of two steps: Mishra et al., section 3.1.

    Attributes:
        dilation: R, the distance of the two steps.
        filters: D.
    """

    dilation: int
    filters: int

    @nn.compact
    def __call__(self, x: jax.Array, past: Past | None = None) -> jax.Array:
        """Computes [B, T, C + D] from [B, T, C]; before the first step, x is 0.

        With the steps before it, x is a single step, [B, 1, C].
        """
        init, zeros = nn.initializers.lecun_normal(), nn.initializers.zeros
        kernel = self.param("kernel", init, (2, x.shape[-1], 2 * self.filters))
        bias = self.param("bias", zeros, (2 * self.filters,))
        if past is None:  # W_0 x and W_1 x of all steps in one product
            products = linear(x, jnp.concatenate([*kernel], 1))  # [B, T, 4 D]
            earlier, now = jnp.split(products, 2, -1)
            earlier = jnp.pad(earlier, ((0, 0), (self.dilation, 0), (0, 0)))
            earlier = earlier[:, : x.shape[1]]
        else:
            earlier = past.before(x.shape[-1], self.dilation) @ kernel[0]
            now = x @ kernel[1]
        # x_f, x_g = W_0 x_{t-R} + W_1 x_t + b
        x_f, x_g = jnp.split(earlier + now + bias, 2, -1)
        return jnp.concatenate([x, jnp.tanh(x_f) * nn.sigmoid(x_g)], -1)


class TCBlock(nn.Module):
    """TCBlock, temporal convolutions: Mishra et al., section 3.1; see `dilations`.

    Attributes:
        length: T, maximum number of steps.
        filters: D.
    """

    length: int
    filters: int

    @nn.compact
    def __call__(self, x: jax.Array, past: Past | None = None) -> jax.Array:
        """Computes [B, T, C + D ceil(log2 length)] from [B, T, C]."""
        for dilation in dilations(self.length):
            x = DenseBlock(dilation, self.filters)(x, past)
        return x


def dilations(length: int) -> list[int]:
    """Returns 1, 2, 4, ..., one for each layer of a `TCBlock`, ceil(log2 length)."""
    return [2**i for i in range(math.ceil(math.log2(length)))]


class AttentionBlock(nn.Module):
    """AttentionBlock, causal with one head: Mishra et al. (2018), section 3.1.

    Sows an `AttentionRecord` of kind "causal".

    Attributes:
        key_size: K.
        value_size: V.
        score: a key of `attention.scores.SCORES`; scaled_dot in the paper.
        score_hidden: hidden width of a score that has one.
        max_length: maximum number of steps, for the location score.
        layer: index among the attention blocks, from 0.
    """

    key_size: int
    value_size: int
    score: str = "scaled_dot"
    score_hidden: int = 0
    max_length: int = 0
    layer: int = 0

    @nn.compact
    def __call__(self, x: jax.Array, past: Past | None = None) -> tuple[jax.Array, ...]:
        """Computes [B, T, C + V] from [B, T, C].

        With the steps before it, x is a single step, [B, 1, C].

        Returns:
            The output, and keys and values of all steps.
        """
        query = Dense(self.key_size, name="query")(x)  # [B, T, K]
        key = Dense(self.key_size, name="key")(x)
        value = Dense(self.value_size, name="value")(x)  # [B, T, V]
        score = Score(
            self.score,
            hidden=self.score_hidden or self.key_size,
            max_length=self.max_length,
            name="scores",
        )
        if past is None:
            mask = causal_mask(x.shape[1], x.shape[1])
        else:
            key = past.append(past.keys[self.layer], key)
            value = past.append(past.values[self.layer], value)
            mask = (jnp.arange(key.shape[1]) <= past.t[:, None])[:, None]
        # softmax(q k^T / sqrt(K)) v
        context, weights = attend(score(query, key), value, mask=mask)
        q, k = query[:, None], key[:, None]
        sow_attention(
            self,
            weights[:, None],
            lambda: score_details(score.parts(q, k), mask[..., None, :, :]),
            kind="causal",
            layer=self.layer,
            queries="steps",
            keys="steps",
        )
        return jnp.concatenate([x, context], -1), key, value


class Snail(nn.Module):
    """Stack of temporal convolutions and attention blocks.

    The output at a step depends on the input up to this step. The same parameters
    read any number of steps up to `length`; the convolutions of a block reach all of
    them.

    Attributes:
        length: T, maximum number of steps.
        blocks: in order, (K, V) for an `AttentionBlock` and D for a `TCBlock`.
        score: see `AttentionBlock`.
        score_hidden: see `AttentionBlock`; 0 for K.
    """

    length: int
    blocks: Sequence[int | Sequence[int]] = FEW_SHOT
    score: str = "scaled_dot"
    score_hidden: int = 0

    @nn.nowrap
    def start(self, batch: int, width: int) -> Past:
        """Returns the memory before the first step of B sequences with C = width."""
        attended = [block for block in self.blocks if not isinstance(block, int)]
        layers = len(dilations(self.length))
        for block in self.blocks:
            width += block * layers if isinstance(block, int) else block[1]
        keys, values = (
            tuple(jnp.zeros((batch, self.length, block[n])) for block in attended)
            for n in (0, 1)
        )
        output = jnp.zeros((batch, self.length, width))
        return Past(jnp.zeros(batch, jnp.int32), output, keys, values)

    def step(self, past: Past, x: jax.Array) -> tuple[Past, jax.Array]:
        """Reads one more step; the output is that of reading the whole sequence.

        Args:
            past: memory of the steps before it.
            x: [B, C].

        Returns:
            The new memory, and [B, C'].
        """
        output, keys, values = self._read(x[:, None], past)
        outputs = past.append(past.output, output)
        return Past(past.t + 1, outputs, keys, values), output[:, 0]

    def __call__(self, x: jax.Array) -> jax.Array:
        """Reads sequences.

        Args:
            x: [B, T, C].

        Returns:
            [B, T, C'], the channels of the input and of all blocks.
        """
        return self._read(x)[0]

    @nn.compact
    def _read(
        self, x: jax.Array, past: Past | None = None
    ) -> tuple[jax.Array, tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        """Returns the output, and the keys and values of each attention block."""
        keys, values = [], []
        for block in self.blocks:
            if isinstance(block, int):
                x = TCBlock(self.length, block)(x, past)
                continue
            x, key, value = AttentionBlock(
                *block,
                score=self.score,
                score_hidden=self.score_hidden,
                max_length=self.length,
                layer=len(keys),
            )(x, past)
            keys.append(key)
            values.append(value)
        return x, tuple(keys), tuple(values)


def check_blocks(blocks: Sequence[int | Sequence[int]]) -> None:
    """Raises a FieldError unless each block is D, or (K, V)."""
    if any(not isinstance(block, int) and len(block) != 2 for block in blocks):
        accepted = "a list of D for convolutions and K x V for attention, as in 64x32"
        raise FieldError("blocks", blocks, accepted)
