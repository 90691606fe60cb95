"""Non-local block over a feature map: Wang et al. (2018), Zhang et al. (2019).

y = gamma o + x (Zhang et al., eq. 3), with gamma initially 0. `form` selects an entry
of `attention.spatial.NON_LOCAL` (Wang et al.).

Axes: B images; I, J rows and columns; K, L rows and columns of the keys' map; C
channels.
"""

from collections.abc import Callable
from functools import partial

import jax
from flax import linen as nn

from attention.core import Attention
from attention.declaration import ScoreParts
from attention.spatial import NON_LOCAL, max_pool
from base.records import ScoreDetails
from models.recording import score_details, sow_attention
from models.spectral import Layer


class SpatialSelfAttention(nn.Module):
    """Self-attention over a feature map: Zhang et al. (2019), eqs. 1-3.

    beta_{j,i} = softmax_i(g(x_j) f(x_i)), o_j = v(sum_i beta_{j,i} h(x_i)), and
    y = gamma o + x, with f the keys, g the queries, h the values, v the output layer.

    Attributes:
        form: a key of `attention.spatial.NON_LOCAL`.
        key_reduction: C / width of queries and keys; 8 in the paper.
        value_reduction: C / width of values; the output layer restores C channels.
        pool: whether keys and values are max-pooled over 2 x 2 positions.
        spectral: see `normed_kernel`.
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
        """Applies self-attention to a map x; sows its weights as an `AttentionRecord`.

        Args:
            x: [B, I, J, C].
            train: whether spectral norms make a power iteration.

        Returns:
            [B, I, J, C]; the recorded weights are [B, I, J, K, L].
        """
        width = x.shape[-1]
        key_width = max(width // self.key_reduction, 1)
        value_width = max(width // self.value_reduction, 1)
        layer = partial(Layer, spectral=self.spectral, kernel=0, use_bias=False)
        query = key = x
        if self.form != "gaussian":  # "gaussian" compares x itself
            query = layer(key_width, name="query")(x, train=train)  # g(x)
            key = layer(key_width, name="key")(x, train=train)  # f(x)
        value = layer(value_width, name="value")(x, train=train)  # h(x)
        if self.pool:
            key, value = max_pool(key), max_pool(value)
        # beta_{j,i} = softmax_i(f(x_i) g(x_j)), sum_i beta_{j,i} h(x_i)
        context, beta = self._form(query.shape[-1])(query, key, value)
        o = layer(width, name="output")(context, train=train)  # v(...)
        gamma = self.param("gamma", nn.initializers.zeros, ())
        y = gamma * o + x

        def details() -> ScoreDetails | None:
            if self.form not in ("gaussian", "embedded_gaussian"):
                return None  # the weights are not a softmax
            rows = (
                each.reshape(len(x), 1, -1, each.shape[-1]) for each in (query, key)
            )
            return score_details(ScoreParts(*rows))

        names = {"kind": "spatial", "queries": "map", "keys": "map"}
        sow_attention(self, beta, details, layer=self.layer, **names)
        return y

    def _form(self, width: int) -> Callable[..., Attention]:
        """Returns the non-local form, for queries and keys of this width."""
        if self.form != "concatenation":
            return NON_LOCAL[self.form]
        w = self.param("w", nn.initializers.normal(width**-0.5), (2 * width,))
        return partial(NON_LOCAL[self.form], w=w)
