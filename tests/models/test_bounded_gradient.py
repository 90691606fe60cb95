import jax
import jax.numpy as jnp
import numpy as np

from models.bounded_gradient import bounded_gradient


def tree(draw):
    return {"a": draw(3, 5), "b": (draw(7), draw())}


def test_the_value_is_that_of_the_identity(draw):
    x = tree(draw)
    value = jax.jit(lambda x: bounded_gradient(x, 1.0))(x)
    jax.tree.map(np.testing.assert_array_equal, value, x)


def test_each_element_of_the_gradient_is_clipped(draw):
    x, slopes = tree(draw), tree(draw)

    def total(x):
        products = jax.tree.map(jnp.vdot, slopes, bounded_gradient(x, 0.5))
        return sum(jax.tree.leaves(products))

    gradients = jax.grad(total)(x)
    assert any((abs(slope) > 0.5).any() for slope in jax.tree.leaves(slopes))
    expected = jax.tree.map(lambda slope: np.clip(slope, -0.5, 0.5), slopes)
    jax.tree.map(np.testing.assert_array_equal, gradients, expected)


def test_a_product_of_many_steps_stays_finite(draw):
    def last(x, limit):
        def step(x, _):
            return (3 * x if limit is None else bounded_gradient(3 * x, limit)), None

        return jax.lax.scan(step, x, None, length=100)[0].sum()

    x = 1e-30 * draw(5)
    assert np.isinf(jax.grad(last)(x, None)).all()
    np.testing.assert_allclose(jax.grad(last)(x, 2.0), np.full(5, 6.0))
