"""A recurrent decoder's attention to the source, with any score and any alignment.

Axes: as in `models.encoder_decoder`.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax
import jax
from flax import linen as nn

from attention.declaration import Score as ScoreFunction
from attention.scores import STEPWISE_SCORES
from models.attention import DRAWN, Alignment, AlignmentOutput, Score
from models.layers import Dense


class SourceMemory(NamedTuple):
    """An encoded source to attend to, projected once for all steps."""

    annotations: jax.Array  # [B, S, E], h_j
    mask: jax.Array  # [B, S] bool, False at padding
    keys: jax.Array  # [B, S, F]
    values: jax.Array  # [B, S, any], annotations times the context's weight matrix
    start: tuple[jax.Array, ...]  # [B, states D] per layer, the first carry


@flax.struct.dataclass
class AttendedSource:
    """Keys of a source with the parameters of score and alignment; loop-invariant.

    Attributes:
        keys: [B, S, F].
        mask: [B, S] bool, False at padding.
        score_parameters: parameters of the score function, by name.
        align_parameters: parameters of the alignment, by name.
        soft: bool scalar; see `models.attention.Alignment.align`.
        score_function: a key of `STEPWISE_SCORES`.
        alignment: settings of the alignment.
    """

    keys: jax.Array
    mask: jax.Array
    score_parameters: dict[str, jax.Array]
    align_parameters: dict[str, jax.Array]
    soft: jax.Array | None
    score_function: str = flax.struct.field(pytree_node=False)
    alignment: Alignment = flax.struct.field(pytree_node=False)

    def score(self, query: jax.Array, previous: jax.Array | None) -> jax.Array:
        """Returns scores [B, R, S] of queries [B, R, D] and `carried`."""
        score, parameters = STEPWISE_SCORES[self.score_function], self.score_parameters
        if score.stepwise:
            parameters = parameters | {"previous": previous}
        return score.compare(query, self.keys, **parameters)

    def carried(self, aligned: AlignmentOutput) -> jax.Array | None:
        """Returns the weights for the score of the next step, None if it has no use."""
        stepwise = STEPWISE_SCORES[self.score_function].stepwise
        return aligned.weights if stepwise else None

    def align(
        self,
        scores: jax.Array,
        query: jax.Array,
        time: jax.Array,
        rng: jax.Array | None = None,
    ) -> AlignmentOutput:
        """Computes attention weights from scores.

        Args:
            scores: [B, R, S] from `score`.
            query: [B, R, D], from which local-p predicts its position.
            time: int scalar, the step, from 0.
            rng: PRNG key of a random alignment; None for the most probable key.

        Returns:
            Weights [B, R, S] and the alignment's other results [B, R].
        """
        return self.alignment.align(
            self.align_parameters,
            scores,
            query=query,
            time=time,
            mask=self.mask[:, None],
            rng=rng,
            soft=self.soft,
        )


class SourceAndBiases(NamedTuple):
    """Loop-invariant arrays of a decoder with several layers."""

    source: AttendedSource
    biases: tuple[jax.Array, ...]  # [G] per layer after the first


class SourceAttention(nn.Module):
    """A decoder's attention to the source, with any score and any alignment.

    If the score needs keys of the query's width, annotations of another width (from a
    bidirectional encoder, for example) are projected to it by a matrix [E, D].

    Attributes:
        scores: the score, a key of `attention.scores.STEPWISE_SCORES`.
        align: the alignment.
        width: width of a query, D.
        kernel_init: initializer of the matrix [E, D].
        score_gradient: whether the scores' gradient reaches the annotations; False
            leaves the encoder only the gradient of the contexts.
        keys: meaning of the keys' axis; see `base.records.AttentionRecord`.
    """

    scores: Score
    align: Alignment
    width: int
    kernel_init: Callable
    score_gradient: bool = True
    keys: str = "source"

    def setup(self):
        if self.score.same_width:
            self.narrow = Dense(
                self.width, kernel_init=self.kernel_init, use_bias=False
            )

    @property
    def score(self) -> ScoreFunction:
        """The score function."""
        return STEPWISE_SCORES[self.scores.function]

    @property
    def draws(self) -> bool:
        """True if the alignment samples a key when it gets an rng."""
        return self.align.function in DRAWN

    def project(self, annotations: jax.Array) -> jax.Array:
        """Projects annotations [B, S, E] to keys [B, S, F], once per source."""
        if not self.score_gradient:
            annotations = jax.lax.stop_gradient(annotations)
        if self.score.same_width and annotations.shape[-1] != self.width:
            annotations = self.narrow(annotations)
        parameters = self.scores.parameters(self.width, annotations.shape[-1])
        return self.score.project(annotations, **parameters)

    def source(
        self, memory: SourceMemory, soft: jax.Array | None = None
    ) -> AttendedSource:
        """Returns the source for the decoder's steps.

        Args:
            memory: an encoded source with keys from `project`.
            soft: see `AttendedSource`.
        """
        width = memory.annotations.shape[-1]
        width = self.width if self.score.same_width else width
        return AttendedSource(
            keys=memory.keys,
            mask=memory.mask,
            score_parameters=self.scores.parameters(self.width, width),
            align_parameters=self.align.parameters(self.width),
            soft=soft,
            score_function=self.scores.function,
            alignment=self.align.clone(parent=None),
        )

    def record(self, aligned: AlignmentOutput) -> None:
        """Sows the alignments [B, T, ...] of all steps as one head, [B, 1, T, ...]."""
        jax.tree.map(lambda x: x[:, None], aligned).record(
            self, kind="cross", layer=0, queries="target", keys=self.keys
        )
