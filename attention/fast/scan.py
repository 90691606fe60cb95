"""`jax.lax.scan` with deferred weight gradients.

The gradient of a weight matrix used in every step is a sum over steps. `jax.lax.scan`
computes one thin product per step, which reads and writes an array as large as the
matrix. Here the loop stores both factors of each product, and a single product after
the loop sums over all steps. The backward pass transposes each matrix once, before its
loop.

Axes: ... any batch; B batch; T steps; R rows of a batch element; D, F input and output
width of a matrix; S, V input and output width of a matrix per batch element.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp


class Matrix(Protocol):
    """Weight matrix of a step: an array, or a handle in a scan; supports `x @ matrix`.

    A step annotated with this type runs both inside `scan` and as a single decoding
    step.
    """

    def __rmatmul__(self, x: jax.Array, /) -> jax.Array:
        """Product of x [..., B, R, D] and the matrix [D, F]: [..., B, R, F]."""


def scan(
    step: Callable[[Any, Any, Any, Any], tuple[Any, Any]],
    matrices: Any,
    shared: Any,
    carry: Any,
    inputs: Any,
) -> tuple[Any, Any]:
    """`jax.lax.scan` of a step with weight matrices; equal value, cheaper gradient.

    Only reverse-mode gradients are defined, and all floating arrays must have the same
    dtype. Within the step, a product with a weight must not be inside another
    transformation (`jax.checkpoint`, `jax.vmap`, `jax.lax.cond`).

    Args:
        step: step(matrices, shared, carry, x) -> (carry, y), a pure function of its
            arguments. Inside the scan each leaf of its `matrices` is a handle that
            supports `x @ matrix` for x [B, R, D], any number of times, and nothing
            else.
        matrices: pytree of matrices [D, F], or [B, S, V] for one per batch element.
        shared: pytree of other arrays that every step reads: biases, masks, keys.
        carry: pytree passed from step to step.
        inputs: pytree of [T, ...] arrays, one slice per step.

    Returns:
        The last carry, and the y of all steps as a pytree of [T, ...] arrays.
    """
    arrays, treedef = jax.tree.flatten(matrices)
    none = [None] * len(arrays)

    def loop(arrays, transposed, shared, carry, inputs, deltas):
        def body(carry, x):
            x, deltas = x
            handles = list(map(Handle, arrays, transposed, deltas))
            carry, y = step(jax.tree.unflatten(treedef, handles), shared, carry, x)
            return carry, (y, [handle.factors for handle in handles])

        return jax.lax.scan(body, carry, (inputs, deltas))

    @jax.custom_vjp
    def run(arrays, shared, carry, inputs):
        carry, (y, _) = loop(arrays, none, shared, carry, inputs, none)
        return carry, y

    def forward(arrays, shared, carry, inputs):
        transposed = jax.lax.optimization_barrier(
            [w.T if w.ndim == 2 else None for w in arrays]
        )
        moving = shared, carry, inputs, none
        _, (_, factors) = jax.eval_shape(lambda: loop(arrays, none, *moving))
        deltas = [
            [jnp.zeros((*x.shape[:-1], w.shape[-1]), x.dtype) for x in products]
            for w, products in zip(arrays, factors, strict=True)
        ]
        differentiated = functools.partial(loop, arrays, transposed)
        (carry, (y, factors)), back = jax.vjp(
            differentiated, shared, carry, inputs, deltas
        )
        return (carry, y), (back, factors, arrays)

    def backward(residuals, gradients):
        back, factors, arrays = residuals
        carry, y = gradients
        zeros = jax.tree.map(jnp.zeros_like, factors)
        *others, deltas = back((carry, (y, zeros)))
        return list(map(weight_gradient, arrays, factors, deltas)), *others

    run.defvjp(forward, backward)
    return run(arrays, shared, carry, inputs)


class Handle:
    """A weight inside a loop, which keeps the factors and values of its products.

    Attributes:
        factors: the left factors x [B, ..., D], in the order of the products.
        products: x W [B, ..., F].
    """

    def __init__(
        self,
        array: jax.Array,
        transposed: jax.Array | None = None,
        deltas: Sequence[jax.Array] | None = None,
        saved: Sequence[jax.Array] | None = None,
    ):
        """Creates a handle.

        Args:
            array: W [D, F], or [B, D, F].
            transposed: W^T for the gradient, if it has been formed before.
            deltas: zeros like `products`, which receive the gradients of the products.
            saved: products of an earlier pass, returned instead of computed again.
        """
        self._array, self._transposed = array, transposed
        self._deltas, self._saved = deltas, saved
        self.factors: list[jax.Array] = []
        self.products: list[jax.Array] = []

    def __rmatmul__(self, x: jax.Array) -> jax.Array:
        number = len(self.factors)
        delta = None if self._deltas is None else self._deltas[number]
        saved = None if self._saved is None else self._saved[number]
        product = _product(x, self._array, self._transposed, delta, saved)
        self.factors.append(x)
        self.products.append(product)
        return product


@jax.custom_vjp
def _product(x, weight, transposed, delta, saved):
    """Product x W; `delta` has no effect, but receives the gradient of the product."""
    return x @ weight if saved is None else saved


def _product_forward(x, weight, transposed, delta, saved):
    return _product(x, weight, transposed, delta, saved), (weight, transposed)


def _product_backward(residuals, gradient):
    weight, transposed = residuals
    back = jnp.swapaxes(weight, -1, -2) if transposed is None else transposed
    return gradient @ back, None, None, gradient, None


_product.defvjp(_product_forward, _product_backward)


def weight_gradient(
    weight: jax.Array, factors: list[jax.Array], deltas: list[jax.Array]
) -> jax.Array:
    """Sum of x^T g over all steps and products of a weight; 0 without products."""
    if not factors:
        return jnp.zeros_like(weight)
    products = [
        jnp.einsum("tbrs,tbrv->bsv", x, delta)
        if weight.ndim == 3
        else jnp.tensordot(x, delta, 2 * [list(range(x.ndim - 1))])
        for x, delta in zip(factors, deltas, strict=True)
    ]
    return functools.reduce(jnp.add, products)
