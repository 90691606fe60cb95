"""Layer normalisation with a hand-written gradient.

Axes: ... any batch; C channels.
"""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Layer norm scale (x - mean) / std + bias over C: Ba et al. (2016), eq. 4.

    The variance is increased by 1e-6. The gradient takes fewer passes over [..., C]
    than the automatic one.

    Args:
        x: [..., C] float32.
        scale: [C] learned gain.
        bias: [C] learned bias.

    Returns:
        [..., C] float32.
    """
    return _layer_norm_forward(x, scale, bias)[0]


def _layer_norm_forward(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    variance = jnp.square(centred).mean(-1, keepdims=True)
    inverse = jax.lax.rsqrt(variance + 1e-6)
    return centred * inverse * scale + bias, (x, mean, inverse, scale)


def _layer_norm_backward(residuals, gradient):
    x, mean, inverse, scale = residuals
    normed = (x - mean) * inverse
    scaled = gradient * scale
    along = (scaled * normed).mean(-1, keepdims=True)
    x_gradient = inverse * (scaled - scaled.mean(-1, keepdims=True) - normed * along)
    batch = tuple(range(x.ndim - 1))
    return x_gradient, (gradient * normed).sum(batch), gradient.sum(batch)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)
