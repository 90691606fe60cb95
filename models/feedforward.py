"""Feed-forward attention network of Raffel and Ellis (2015).

    h_t = f(W_xh x_t + b_xh)
    e_t = tanh(w h_t + b),  alpha = softmax(e),  c = sum_t alpha_t h_t
    s = f(W_cs c + b_cs),  y = f(W_sy s + b_sy)

y is the estimate, f the leaky rectifier of slope 0.01. The authors' baseline is the
mean, alpha_t = 1 / T.

Without a mask, padding takes part in the softmax, with the value f(b_xh); `mask`
excludes the padding of a batch.

Axes: B batch; T steps; D hidden width.

Differs from the authors' code: matrices are initialised from He's normal distribution
of variance 2 / inputs, as the paper says; the code omits the rectifier's gain.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.declaration import ScoreParts
from attention.fast.pooled_attention import pooled_attention
from base.ranges import SIZE
from base.records import ScoreDetails
from models.layers import check_fields
from models.recording import score_details, sow_attention

FEATURES = 2  # numbers per step: a value and a marker

_f = jax.nn.leaky_relu
_he = nn.initializers.variance_scaling(2.0, "fan_in", "normal")


class FeedForwardAttention(nn.Module):
    """Feed-forward attention network; see the module's docstring.

    Attributes:
        pooling: reduction over the steps: "attention", or "mean" for the baseline.
        hidden: D, width of both hidden layers.
    """

    pooling: Literal["attention", "mean"] = "attention"
    hidden: Annotated[int, SIZE] = 100

    def setup(self):
        check_fields(self)
        width, zeros = self.hidden, nn.initializers.zeros
        self.w_xh = self.param("input_kernel", _he, (FEATURES, width))
        self.b_xh = self.param("input_bias", zeros, (width,))
        self.w_cs = self.param("hidden_kernel", _he, (width, width))
        self.b_cs = self.param("hidden_bias", zeros, (width,))
        self.w_sy = self.param("output_kernel", _he, (width, 1))
        self.b_sy = self.param("output_bias", zeros, (1,))
        if self.pooling == "attention":
            normal = nn.initializers.normal(width**-0.5)
            self.w = self.param("attention_kernel", normal, (width,))
            self.b = self.param("attention_bias", zeros, ())
        else:
            # Equal scores: alpha_t = 1 / T.
            self.w, self.b = jnp.zeros(width), jnp.zeros(())

    def __call__(
        self, inputs: jax.Array, mask: jax.Array | None = None, *, train: bool
    ) -> jax.Array:
        """Estimates a number for each sequence.

        Sows an `AttentionRecord` [B, 1, 1, T]; its score has one unit, tanh(b + h_t w).

        Args:
            inputs: [B, T, 2] values and markers.
            mask: [B, T] bool, False at padding; None without padding.
            train: has no effect.

        Returns:
            [B] estimates.
        """
        # h_t = f(W_xh x_t + b_xh), e_t = tanh(w h_t + b)
        # alpha = softmax(e), c = sum_t alpha_t h_t
        c, alpha = pooled_attention(self._h, inputs, self.w, self.b, mask=mask)
        s = _f(c @ self.w_cs + self.b_cs)
        y = _f(s @ self.w_sy + self.b_sy)

        def details() -> ScoreDetails | None:
            query = jnp.broadcast_to(self.b, (len(inputs), 1, 1, 1))
            key = (self._h(inputs) @ self.w)[:, None, :, None]
            parts = ScoreParts(query, key, v=jnp.ones(1), activation="tanh")
            return score_details(parts, None if mask is None else mask[:, None, None])

        weights = alpha[:, None, None]
        sow_attention(self, weights, details, queries="estimate", keys="steps")
        return y[:, 0]

    def _h(self, inputs: jax.Array) -> jax.Array:
        """Values h_t [..., T, D] of inputs x_t [..., T, 2]."""
        return _f(inputs @ self.w_xh + self.b_xh)
