"""Types of decoding: carry, step and result.

Axes: B sentences; R rows, the hypotheses of a sentence that are decoded in parallel; N
returned hypotheses; L positions of the output; S source positions; W vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from base.errors import UserError
from base.records import SearchTree


class Module(Protocol):
    """A Flax module."""

    def apply(self, variables: Any, *args: Any, **options: Any) -> Any:
        """Returns the result of a method, with the sown collections if requested."""


class Carry(Protocol):
    """A decoder's state for [B, R] hypotheses: a pytree of constant shapes."""

    def take(self, parents: jax.Array) -> Self:
        """Returns the state whose row r continues row `parents[b, r]` of this one."""


# (carry, token [B, R] int32) -> (carry, logits [B, R, W], weights [B, R, S] or None).
# A closure over parameters and encoded source. A logit of -inf forbids a token.
Step = Callable[[Carry, jax.Array], tuple[Carry, jax.Array, jax.Array | None]]


class Decoded(NamedTuple):
    """Hypotheses of each sentence, best score first.

    Attributes:
        tokens: [B, N, L] int32, ending in EOS, then PAD; there is no BOS.
        scores: [B, N] float32, in descending order; with fewer than N hypotheses the
            rest have the score -inf and the length 0.
        log_probs: [B, N] float32 log p(tokens | source), EOS included.
        lengths: [B, N] int32 number of tokens, EOS included.
        weights: [B, N, L, S] attention weights at each token, 0 after EOS; None unless
            requested.
        tree: the whole search, of [B, L, R] arrays; None unless requested.
    """

    tokens: jax.Array
    scores: jax.Array
    log_probs: jax.Array
    lengths: jax.Array
    weights: jax.Array | None
    tree: SearchTree | None = None

    def search_tree(self, row: int) -> SearchTree | None:
        """Returns the search of a sentence, if it was requested."""
        if self.tree is None:
            return None
        return SearchTree(*(np.asarray(x[row]) for x in self.tree)).cut()

    def hypotheses(self, row: int) -> list[tuple[list[int], float, np.ndarray | None]]:
        """Returns the ids, score and weights [T, S] of a sentence's hypotheses.

        Args:
            row: number of the sentence.

        Raises:
            UserError: if none has a finite score.
        """
        hypotheses: list[tuple[list[int], float, np.ndarray | None]] = []
        for n, length in enumerate(self.lengths[row]):
            if not length:  # fewer than n + 1 hypotheses
                continue
            weights = None
            if self.weights is not None:
                weights = np.asarray(self.weights[row, n, :length])
            ids = self.tokens[row, n, :length].tolist()
            hypotheses.append((ids, float(self.scores[row, n]), weights))
        if not any(math.isfinite(score) for _, score, _ in hypotheses):
            raise UserError(
                "the search finds no hypothesis with a finite score, as outputs of the "
                "model are not finite"
            )
        return hypotheses
