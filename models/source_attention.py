"""A recurrent decoder's attention to the source, with any score and any alignment.

    e_tj = score(s, h_j),  a_t = align(e_t),  c_t = sum_j a_tj h_j

Once per source, `project` makes the keys and `source` collects what does not change. In
each step, `weigh` computes a_t; the model's `advance` sums the values with these
weights.

Axes: as in `models.encoder_decoder`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.declaration import ScoreFunction
from attention.scores import STEPWISE_SCORES
from base.records import ScoreDetails, sow
from models.attention import Alignment, AlignmentOutput, Score
from models.layers import Dense
from models.recording import detailed, score_details, sow_attention


class SourceMemory(NamedTuple):
    """An encoded source to attend to, projected once for all steps."""

    annotations: jax.Array  # [B, S, E], h_j
    mask: jax.Array  # [B, S] bool, False at padding
    keys: jax.Array  # [B, S, F]
    # [B, S, V], summed by the weights: h_j, or C h_j if the step only needs the product
    values: jax.Array
    start: tuple[jax.Array, ...]  # [B, carry_width D] per layer, the first carry


class AttendedSource(NamedTuple):
    """A source and the parameters of its score and alignment, read in each step."""

    keys: jax.Array  # [B, S, F]
    mask: jax.Array  # [B, 1, S] bool, False at padding
    score_parameters: dict[str, jax.Array]
    align_parameters: dict[str, jax.Array]  # of local-p; else empty
    soft: jax.Array | None  # bool scalar; see `Alignment`


class SourceAttention(nn.Module):
    """A decoder's attention to the source, with any score and any alignment.

    If the score needs keys of the query's width, annotations of another width (from a
    bidirectional encoder, for example) are projected to it by a matrix [E, D].

    Attributes:
        scores: the score's module, with a function of `STEPWISE_SCORES`.
        align: the alignment's module.
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
        if self.function.same_width:
            self.narrow = Dense(
                self.width, kernel_init=self.kernel_init, use_bias=False
            )

    @property
    def function(self) -> ScoreFunction:
        """The score function."""
        return STEPWISE_SCORES[self.scores.function]

    def project(self, annotations: jax.Array) -> jax.Array:
        """Projects annotations [B, S, E] to keys [B, S, F], once per source."""
        if not self.score_gradient:
            annotations = jax.lax.stop_gradient(annotations)
        return self.scores.project(self._narrowed(annotations), self.width)

    def _narrowed(self, annotations: jax.Array) -> jax.Array:
        """Returns annotations [B, S, E or D] of the width that the score accepts."""
        if self.function.same_width and annotations.shape[-1] != self.width:
            return self.narrow(annotations)
        return annotations

    def source(
        self, memory: SourceMemory, soft: jax.Array | None = None
    ) -> AttendedSource:
        """Returns the source for the decoder's steps.

        Args:
            memory: an encoded source with keys from `project`.
            soft: bool scalar; see `models.attention.Alignment`.
        """
        key_width = memory.annotations.shape[-1]
        if self.function.same_width:
            key_width = self.width
        return AttendedSource(
            keys=memory.keys,
            mask=memory.mask[:, None],
            score_parameters=self.scores.parameters(self.width, key_width),
            align_parameters=self.align.parameters(self.width),
            soft=soft,
        )

    @nn.nowrap
    def weigh(
        self,
        source: AttendedSource,
        query: jax.Array,
        *,
        time: jax.Array,
        previous: jax.Array | None = None,
        rng: jax.Array | None = None,
    ) -> AlignmentOutput:
        """Computes attention weights align(score(s, h)), a pure function.

        Args:
            source: an attended source.
            query: [B, R, D].
            time: int scalar, the step, from 0.
            previous: [B, R, S], the previous step's weights, for a location-aware
                score; None for other scores.
            rng: PRNG key to sample a key; None for the most probable key.

        Returns:
            Weights [B, R, S] and the alignment's other results [B, R].
        """
        parameters = source.score_parameters
        if previous is not None:
            parameters = parameters | {"previous": previous}
        # e_j = score(s, h_j), a = align(e)
        s = self.function.project_query(query, **parameters)
        e = self.function.compare(s, source.keys, **parameters)
        aligned = self.align(
            e,
            query=query,
            time=time,
            mask=source.mask,
            rng=rng,
            soft=source.soft,
            parameters=source.align_parameters,
        )
        return aligned._replace(query=query) if detailed(self) else aligned

    def record(self, aligned: AlignmentOutput, memory: SourceMemory) -> None:
        """Sows the alignments [B, T, ...] of all steps as one head, [B, 1, T, ...]."""
        aligned = jax.tree.map(lambda x: x[:, None], aligned)

        def details() -> ScoreDetails | None:
            previous = {}
            if self.function.stepwise:
                ends = (0, 0), (0, 0), (1, 0), (0, 0)
                previous["previous"] = jnp.pad(aligned.weights[:, :, :-1], ends)
            annotations = self._narrowed(memory.annotations)[:, None]
            parts = self.scores.parts(aligned.query, annotations, **previous)
            return score_details(parts, memory.mask[:, None, None])

        sow_attention(
            self,
            aligned.weights,
            details,
            position=aligned.position,
            kind="cross",
            queries="target",
            keys=self.keys,
            **self.align.record_fields,
        )
        if aligned.sample is not None:
            sow(self, aligned.sample)
