"""Kernel regression with a fixed or learned width: Nadaraya (1964), Watson (1964).

The parametric form is f(x) = sum_i softmax_i(-((x - x_i) w)^2 / 2) y_i, with one
learned parameter, w = 1 / width (Zhang et al., Dive into Deep Learning, on attention
pooling).

If training queries may attend to themselves, the loss falls to 0 with the width, since
the nearest neighbour of a training point is the point itself; `leave_one_out` masks a
query's own key in training.

Axes: Q queries; K keys; D query and key width; V value width.

Differs from the source: the learned parameter is the logarithm of the width, which
keeps the width positive and makes its relative steps independent of the scale; the
width can be learned with any kernel that falls with the distance.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import Attention
from attention.kernels import KERNELS, kernel_regression
from base.errors import FieldError
from base.ranges import SCALE, Choice
from models.layers import check_fields

_FLAT = ("boxcar", "constant")  # kernels without a gradient in the width


class KernelRegression(nn.Module):
    """Kernel regression with the width as a parameter.

    A fixed width is a parameter without a gradient, so that checkpoints contain it.

    Attributes:
        kernel: kernel function.
        width: kernel width, positive, in the units of the keys; the initial value if
            learned.
        learned: whether the width is learned.
        leave_one_out: whether a query's own key is masked in training.
    """

    kernel: Annotated[str, Choice(KERNELS)] = "gaussian"
    width: Annotated[float, SCALE] = 1.0
    learned: bool = True
    leave_one_out: bool = True

    @nn.nowrap
    def check(self) -> None:
        """Checks rules between the fields."""
        if self.learned and self.kernel in _FLAT:
            smooth = ", ".join(name for name in KERNELS if name not in _FLAT)
            accepted = (
                f"False for the kernel {self.kernel!r}, which has no gradient in its "
                f"width; kernels with a gradient: {smooth}"
            )
            raise FieldError("learned", self.learned, accepted)

    def setup(self):
        check_fields(self)
        init = nn.initializers.constant(math.log(self.width))
        self.log_width = self.param("log_width", init, ())

    def __call__(self, inputs: Mapping[str, jax.Array], *, train: bool) -> Attention:
        """Estimates the values at the queries.

        Args:
            inputs: `query` [Q, D], `key` [K, D], `value` [K, V] and, in training,
                `own_key` [Q] int, the index of each query's own key.
            train: whether `leave_one_out` applies.

        Returns:
            Attention(context [Q, V], weights [Q, K]).
        """
        mask = None
        if train and self.leave_one_out:
            mask = inputs["own_key"][:, None] != jnp.arange(inputs["key"].shape[0])
        return kernel_regression(
            inputs["query"],
            inputs["key"],
            inputs["value"],
            kernel=KERNELS[self.kernel],
            width=self.current_width(),
            mask=mask,
        )

    def current_width(self) -> jax.Array:
        """Returns the width, a scalar."""
        log_width = self.log_width
        if not self.learned:
            log_width = jax.lax.stop_gradient(log_width)
        return jnp.exp(log_width)
