"""Kernel regression with a width that is given or learned: Nadaraya (1964), Watson.

The parametric form is f(x) = sum_i softmax_i(-((x - x_i) w)^2 / 2) y_i, with one number
to learn, w = 1 / width (Zhang et al., Dive into Deep Learning, on attention pooling).

The trap: trained on its own keys, a query finds itself among them, and the loss falls
to 0 as the width does, since the nearest neighbour of a training point is that point.
`leave_one_out` takes a query's own key away in training.

Axes: Q queries; K keys; D query and key width; V value width.

Differs from the source: what is learned is the logarithm of the width, which keeps the
width positive and gives it the same relative step at any scale; and other kernels than
the Gaussian can learn theirs.
"""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import Attention
from attention.kernels import KERNELS, kernel_regression

_FLAT = ("boxcar", "constant")  # kernels that send no gradient back to the width


class KernelRegression(nn.Module):
    """`attention.kernels.kernel_regression` with its width as a parameter.

    The parameter is there, and in the checkpoints, also where it is not learned.

    Attributes:
        kernel: a key of `KERNELS`.
        width: positive; the first one, where it is learned.
        learned: whether the width is.
        leave_one_out: whether a query may not attend to its own key in training.
    """

    kernel: str
    width: float
    learned: bool
    leave_one_out: bool

    def setup(self):
        if self.kernel not in KERNELS:
            raise ValueError(
                f"kernel is {self.kernel!r}: must be one of {', '.join(KERNELS)}"
            )
        if not 0 < self.width < math.inf:
            raise ValueError(f"width is {self.width}: must be above 0 and finite")
        if self.learned and self.kernel in _FLAT:
            smooth = ", ".join(name for name in KERNELS if name not in _FLAT)
            raise ValueError(
                f"learned is true, but the kernel {self.kernel!r} has no gradient in "
                f"its width: take one of {smooth}"
            )
        start = nn.initializers.constant(math.log(self.width))
        self.log_width = self.param("log_width", start, ())

    def __call__(self, inputs: Mapping[str, jax.Array], *, train: bool) -> Attention:
        """Estimates the values at the queries.

        Args:
            inputs: `query` [Q, D], `key` [K, D], `value` [K, V], and in training `own`
                [Q] int, the number of each query's own key.
            train: whether to leave the own keys out.

        Returns:
            Attention(context [Q, V], weights [Q, K]).
        """
        mask = None
        if train and self.leave_one_out:
            mask = inputs["own"][:, None] != jnp.arange(inputs["key"].shape[0])
        return kernel_regression(
            inputs["query"],
            inputs["key"],
            inputs["value"],
            kernel=KERNELS[self.kernel],
            width=self.current_width(),
            mask=mask,
        )

    def current_width(self) -> jax.Array:
        """The width as it is now, a scalar."""
        fixed = jax.lax.stop_gradient
        return jnp.exp(self.log_width if self.learned else fixed(self.log_width))
