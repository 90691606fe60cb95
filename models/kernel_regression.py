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
from errors import FieldError
from models.layers import check_fields

_FLAT = ("boxcar", "constant")  # kernels that send no gradient back to the width


class KernelRegression(nn.Module):
    """`attention.kernels.kernel_regression` with its width as a parameter.

    The parameter is there, and in the checkpoints, also where it is not learned.

    Attributes:
        kernel: a key of `KERNELS`.
        width: positive; the first one, where it is learned.
        learned: whether the width is.
        leave_one_out: whether a query may not attend to its own key in training.

    Raises:
        FieldError: at the first call, for a field that is out of range.
    """

    kernel: str = "gaussian"
    width: float = 1.0
    learned: bool = True
    leave_one_out: bool = True

    def setup(self):
        check_fields(self, {"kernel": tuple(KERNELS)}, [])
        if not 0 < self.width < math.inf:
            raise FieldError("width", self.width, "above 0 and finite")
        if self.learned and self.kernel in _FLAT:
            smooth = ", ".join(name for name in KERNELS if name not in _FLAT)
            raise FieldError(
                "learned",
                self.learned,
                f"False for the kernel {self.kernel!r}, which has no gradient in its "
                f"width; or take one of {smooth}",
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
