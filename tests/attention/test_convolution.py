import functools

import jax
import numpy as np

from attention.fast.convolution import double, halve, widen


def test_halve_and_double_are_strided_and_transposed_convolutions(x64, draw):
    x, kernel = draw(2, 6, 10, 3), draw(4, 4, 3, 5)
    layout = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(
        x, kernel, (2, 2), "SAME", dimension_numbers=layout
    )
    np.testing.assert_allclose(halve(x, kernel), expected, atol=1e-12)
    expected = jax.lax.conv_transpose(x, kernel, (2, 2), "SAME")
    np.testing.assert_allclose(double(x, kernel), expected, atol=1e-12)


def test_widen_is_a_convolution_after_upsampling_or_before_mean_pooling(x64, draw):
    x, kernel = draw(2, 6, 10, 3), draw(3, 3, 3, 5)
    layout = ("NHWC", "HWIO", "NHWC")
    convolve = functools.partial(
        jax.lax.conv_general_dilated,
        rhs=kernel,
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=layout,
    )
    expected = convolve(x.repeat(2, 1).repeat(2, 2))
    np.testing.assert_allclose(double(x, widen(kernel)), expected, atol=1e-12)
    expected = convolve(x).reshape(2, 3, 2, 5, 2, 5).mean((2, 4))
    np.testing.assert_allclose(halve(x, widen(kernel) / 4), expected, atol=1e-12)
