"""Classifiers of an image from a few labelled examples: SNAIL and two baselines.

An episode has N classes, its ways, with K labelled images each, its shots; then comes
an image without a label, the query. SNAIL, Mishra et al. (2018), section 3, reads the
images one after the other, each with its label:

    x_t = [f(image_t), one_hot(label_t)],  0 for the label of the query
    p = softmax(W Snail(x)_T + b)

Baselines: an LSTM in place of `Snail`; matching networks, Vinyals et al. (2016),
section 2.1, which attend to the labels:

    a = softmax(cosine(f(image_T), f(image_t)))
    p = sum_t a_t one_hot(label_t)

The labels of an episode are drawn anew, so that no classifier can learn them by heart.

Differs from the papers: the embedding f has batch norm with moving averages outside of
training, so that an answer depends on its own episode alone; the cosine has a learned
strength, and the full-context embeddings are left out.

Axes: B episodes; T = N K + 1 images of an episode, the query last; I, J rows and
columns of an image; C width of the embedding; W = N classes.
"""

from collections.abc import Sequence
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import attend
from attention.fast.convolution import conv_general_dilated
from attention.scores import SCORES
from attention.spatial import max_pool
from base.devices import data_axis
from base.ranges import COUNT, LAYERS, SIZE, Choice
from models.attention import Score
from models.initializers import STANDARD
from models.layers import Dense, check_fields
from models.recording import score_details, sow_attention
from models.recurrent import Recurrence
from models.snail import FEW_SHOT, Snail, check_blocks

_MOMENTUM = 0.9  # of the moving averages of batch norm
_MIN = 1e-7  # probability, before its logarithm


class Embedding(nn.Module):
    """Convolutional embedding f of small images: Mishra et al. (2018), appendix A.

    Attributes:
        channels: channels of each 3 x 3 convolution, which batch norm, ReLU and max
            pooling over 2 x 2 pixels follow.
        features: C.
    """

    channels: Sequence[int]
    features: int

    @nn.compact
    def __call__(self, image: jax.Array, *, train: bool) -> jax.Array:
        """Computes [B, C] from [B, I, J, 1]; updates the collection batch_stats."""
        x = image
        for channels in self.channels:
            convolution = nn.Conv(
                channels,
                (3, 3),
                use_bias=False,
                conv_general_dilated=conv_general_dilated,
            )
            normed = nn.BatchNorm(
                use_running_average=not train,
                momentum=_MOMENTUM,
                use_fast_variance=False,
                axis_name=data_axis(),
            )(convolution(x))
            rows, columns = (n - n % 2 for n in x.shape[1:3])
            x = max_pool(nn.relu(normed)[:, :rows, :columns])
        return Dense(self.features)(x.reshape(len(x), -1))


class EpisodeClassifier(nn.Module):
    """Base class of classifiers of episodes.

    A subclass defines `answer`.

    Attributes:
        ways: N.
        shots: maximum K.
        channels: channels of each 3 x 3 convolution of the embedding.
        embedding: C, width of the embedding of an image.
    """

    ways: Annotated[int, SIZE]
    shots: Annotated[int, SIZE]
    channels: Annotated[Sequence[int], SIZE.each()] = (64, 64, 64, 64)
    embedding: Annotated[int, SIZE] = 64

    @nn.compact
    def __call__(self, image: jax.Array, label: jax.Array, *, train: bool) -> jax.Array:
        """Classifies the last image of each episode.

        Args:
            image: [B, T, I, J].
            label: int [B, T]; the last one of each episode is not read.
            train: whether batch norm takes the statistics of the batch.

        Returns:
            [B, W] logits.
        """
        check_fields(self)
        embed = Embedding(self.channels, self.embedding)
        pixels = image.reshape(-1, *image.shape[2:], 1)
        x = embed(pixels, train=train).reshape(*image.shape[:2], -1)  # [B, T, C]
        labels = jax.nn.one_hot(label[:, :-1], self.ways)  # [B, T - 1, W]
        return self.answer(x, labels)

    def answer(self, x: jax.Array, labels: jax.Array) -> jax.Array:
        """Computes logits [B, W] from x [B, T, C] and labels [B, T - 1, W]."""
        raise NotImplementedError


class SnailClassifier(EpisodeClassifier):
    """SNAIL; see the module's docstring and `EpisodeClassifier`.

    Attributes:
        blocks: the blocks in order: (key width, value width) for an attention block,
            the number of filters for temporal convolutions.
        score: attention score; see `attention.scores`.
        score_hidden: hidden width of a score that has one; 0 for the key width.
    """

    blocks: Annotated[Sequence[int | Sequence[int]], SIZE.each()] = FEW_SHOT
    score: Annotated[str, Choice(SCORES)] = "scaled_dot"
    score_hidden: Annotated[int, COUNT] = 0

    @nn.nowrap
    def check(self) -> None:
        """Raises a FieldError for a block that is not D or (K, V)."""
        check_blocks(self.blocks)

    def answer(self, x: jax.Array, labels: jax.Array) -> jax.Array:
        """Computes logits [B, W]; see `EpisodeClassifier`."""
        length = self.ways * self.shots + 1
        snail = Snail(length, self.blocks, self.score, self.score_hidden)
        return Dense(self.ways)(snail(with_labels(x, labels))[:, -1])


class LSTMClassifier(EpisodeClassifier):
    """LSTM in place of SNAIL; see `EpisodeClassifier`.

    Attributes:
        hidden: width of a state.
        layers: number of layers.
    """

    hidden: Annotated[int, SIZE] = 512
    layers: Annotated[int, LAYERS] = 2

    def answer(self, x: jax.Array, labels: jax.Array) -> jax.Array:
        """Computes logits [B, W]; see `EpisodeClassifier`."""
        x = with_labels(x, labels)
        for _ in range(self.layers):
            x, _ = Recurrence("lstm", self.hidden, STANDARD)(x)
        return Dense(self.ways)(x[:, -1])


class MatchingNetwork(EpisodeClassifier):
    """Matching network; see the module's docstring and `EpisodeClassifier`.

    Sows an `AttentionRecord` of the query.

    Attributes:
        score: attention score; see `attention.scores`.
        score_hidden: hidden width of a score that has one; 0 for C.
    """

    score: Annotated[str, Choice(SCORES)] = "cosine"
    score_hidden: Annotated[int, COUNT] = 0

    def answer(self, x: jax.Array, labels: jax.Array) -> jax.Array:
        """Computes logits [B, W]; see `EpisodeClassifier`."""
        hidden = self.score_hidden or self.embedding
        score = Score(self.score, hidden=hidden, max_length=self.ways * self.shots)
        query, key = x[:, -1:], x[:, :-1]
        # a = softmax(score(query, key)), p = sum_t a_t one_hot(label_t)
        p, a = attend(score(query, key), labels)
        sow_attention(
            self,
            a[:, None],
            lambda: score_details(score.parts(query[:, None], key[:, None])),
            kind="matching",
            queries="query",
            keys="steps",
        )
        return jnp.log(jnp.maximum(p[:, 0], _MIN))


def with_labels(x: jax.Array, labels: jax.Array) -> jax.Array:
    """Appends labels to embeddings, and the null label 0 to that of the query.

    Args:
        x: [B, T, C].
        labels: [B, T - 1, W].

    Returns:
        [B, T, C + W].
    """
    null = jnp.zeros_like(labels[:, :1])
    return jnp.concatenate([x, jnp.concatenate([labels, null], 1)], -1)
