"""Counts of floating-point operations in the benchmarks."""

import jax
import jax.numpy as jnp

from benchmarks.systems.ours import gflop


def test_a_product_in_a_scan_counts_once_per_iteration():
    def step(x, weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0].sum()

    x, weights = jnp.ones((3, 5)), jnp.ones((7, 5, 5))
    product = 2e-9 * 3 * 5 * 5
    assert jnp.isclose(gflop(step, x, weights), 7 * product)
    # Backward: one product for the weights and one for x.
    assert jnp.isclose(gflop(jax.grad(step, (0, 1)), x, weights), 3 * 7 * product)


def test_a_convolution_has_as_many_products_as_its_kernel_has_positions():
    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            window_strides=(1, 1),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    x, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((5, 5, 3, 11))
    assert jnp.isclose(
        gflop(jax.jit(convolve), x, kernel), 2e-9 * 2 * 8 * 8 * 11 * 5 * 5 * 3
    )
