"""Counts of floating-point operations, and entropies, in the benchmarks."""

import jax
import jax.numpy as jnp

from benchmarks import initial_entropy
from benchmarks.systems.ours import gflop
from data.vocabulary import PAD
from results.records import read_initial_entropy


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


def test_initial_entropies_are_shares_of_the_entropy_of_uniform_weights():
    tokens = jnp.array([[5, 6, 7, PAD], [5, 6, PAD, PAD]])
    uniform = jnp.array([[[1 / 3, 1 / 3, 1 / 3, 0]], [[0.5, 0.5, 0, 0]]])
    certain = jnp.array([[[0.0, 1, 0, 0]], [[1.0, 0, 0, 0]]])
    assert jnp.allclose(initial_entropy.shares(uniform, {"source": tokens}), 1)
    assert jnp.allclose(initial_entropy.shares(certain, {"source": tokens}), 0)


def test_the_initial_entropies_of_every_score_and_width_are_recorded():
    saved = read_initial_entropy()
    assert tuple(saved) == initial_entropy.SUPPOSED + initial_entropy.TRANSLATORS
    for widths in saved.values():
        assert tuple(widths) == tuple(map(str, initial_entropy.WIDTHS))
        assert {len(values) for values in widths.values()} == {
            len(initial_entropy.SEEDS)
        }


def test_the_scale_keeps_the_entropy_of_wide_dot_products():
    narrow, wide = (initial_entropy.supposed("scaled_dot", w, seed=0) for w in (8, 128))
    assert abs(narrow - wide) < 0.02
    assert initial_entropy.supposed("dot", 128, seed=0) < 0.2
