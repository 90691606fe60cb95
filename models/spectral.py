"""Layers with a spectral norm of 1: Miyato et al. (2018).

Axes: B images; I, J rows and columns; C channels.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from ops.convolution import convolve, double, halve, widen

_TINY = 1e-12


def spectral_norm(kernel: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One power iteration for the largest singular value: algorithm 1.

    Args:
        kernel: [..., C], a matrix of C columns.
        u: [C] of length 1, the last estimate of the right singular vector.

    Returns:
        The estimate of the norm, a scalar with a gradient to `kernel`, and the new u,
        without one.
    """
    matrix = kernel.reshape(-1, kernel.shape[-1])
    fixed = jax.lax.stop_gradient(matrix)
    v = fixed @ u
    v /= jnp.maximum(jnp.linalg.norm(v), _TINY)
    u = v @ fixed
    u /= jnp.maximum(jnp.linalg.norm(u), _TINY)
    return v @ matrix @ u, u


class Normed(nn.Module):
    """Kernel divided by its spectral norm, W / sigma(W): eq. 8.

    u, [C], is state in the collection "spectral" and makes one power iteration per call
    with `train`. `nn.SpectralNorm` has the same iteration, but names its state
    differently from the checkpoints of `models.sagan`.

    Attributes:
        shape: shape of the kernel, outputs last.
        spectral: whether to divide by the norm.
        kernel_init: initializer of the kernel.
    """

    shape: Sequence[int]
    spectral: bool = True
    kernel_init: Callable = nn.initializers.xavier_uniform()

    @nn.compact
    def __call__(self, *, train: bool) -> jax.Array:
        """Return the kernel, of `shape`."""
        kernel = self.param("kernel", self.kernel_init, self.shape)
        if not self.spectral:
            return kernel

        def start() -> jax.Array:
            u = jax.random.normal(self.make_rng("params"), self.shape[-1:])
            return u / jnp.linalg.norm(u)

        u = self.variable("spectral", "u", start)
        norm, new = spectral_norm(kernel, u.value)
        if train and not self.is_initializing():
            u.value = new
        return kernel / jnp.maximum(norm, _TINY)


class Layer(nn.Module):
    """Convolution or dense layer with a normalised kernel.

    Attributes:
        features: output channels.
        spectral: see `Normed`.
        kernel: rows and columns of the kernel: 3, 4, or 0 for a dense layer.
        scale: "same", "half" or "double" the rows and columns. A kernel of 4 is a
            strided or transposed convolution; one of 3 is followed by mean pooling of
            2 x 2, or preceded by nearest-neighbour upsampling.
        kernel_init: initializer of the kernel.
        use_bias: whether to add a bias.
    """

    features: int
    spectral: bool = True
    kernel: int = 3
    scale: str = "same"
    kernel_init: Callable = nn.initializers.xavier_uniform()
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """[B, I, J, C] to [B, I', J', features], or [B, C] to [B, features]."""
        window = (self.kernel, self.kernel) if self.kernel else ()
        shape = (*window, x.shape[-1], self.features)
        kernel = Normed(shape, self.spectral, self.kernel_init, name="normed")(
            train=train
        )
        if not window:
            x = x @ kernel
        elif self.scale == "same":
            x = convolve(x, kernel)
        else:
            factor = 0.25 if self.scale == "half" else 1.0
            wide = kernel if self.kernel == 4 else factor * widen(kernel)
            x = (halve if self.scale == "half" else double)(x, wide)
        if not self.use_bias:
            return x
        return x + self.param("bias", nn.initializers.zeros, (self.features,))
