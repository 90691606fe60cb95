"""Spectral normalisation of dense and convolutional layers: Miyato et al. (2018).

Axes: ... any axes; B batch; I, J image rows and columns; C channels.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.convolution import convolve, double, halve, widen

_TINY = 1e-12


def spectral_norm(kernel: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Spectral norm of a kernel by one power iteration: Miyato et al., algorithm 1.

    Args:
        kernel: [..., C], flattened to a matrix with C columns.
        u: [C], unit vector, the previous estimate of the right singular vector.

    Returns:
        The estimated norm, a scalar with a gradient to `kernel`, and the next u, which
        has no gradient.
    """
    matrix = kernel.reshape(-1, kernel.shape[-1])
    fixed = jax.lax.stop_gradient(matrix)
    v = fixed @ u
    v /= jnp.maximum(jnp.linalg.norm(v), _TINY)
    u = v @ fixed
    u /= jnp.maximum(jnp.linalg.norm(u), _TINY)
    return v @ matrix @ u, u


class Normed(nn.Module):
    """Spectrally normalised kernel W / sigma(W): Miyato et al. (2018), eq. 8.

    The vector u [C] is a variable of the collection "spectral", updated by one power
    iteration per call with `train`. `nn.SpectralNorm` does the same, but names its
    variables differently from the checkpoints of `models.sagan`.

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
        """Returns the kernel, of `shape`."""
        kernel = self.param("kernel", self.kernel_init, self.shape)
        if not self.spectral:
            return kernel

        def init_u() -> jax.Array:
            u = jax.random.normal(self.make_rng("params"), self.shape[-1:])
            return u / jnp.linalg.norm(u)

        u = self.variable("spectral", "u", init_u)
        norm, next_u = spectral_norm(kernel, u.value)
        if train and not self.is_initializing():
            u.value = next_u
        return kernel / jnp.maximum(norm, _TINY)


class Layer(nn.Module):
    """Convolution or dense layer with a spectrally normalised kernel.

    Attributes:
        features: output channels.
        spectral: whether to normalise the kernel.
        kernel: rows and columns of the kernel: 3, 4, or 0 for a dense layer.
        scale: resolution of the output: "same", "half" or "double". For the last two, a
            kernel of 4 is a strided or transposed convolution; a kernel of 3 is
            followed by 2 x 2 mean pooling, or preceded by nearest-neighbour upsampling.
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
        """Maps [B, I, J, C] to [B, I', J', features], or [B, C] to [B, features]."""
        window = (self.kernel, self.kernel) if self.kernel else ()
        shape = (*window, x.shape[-1], self.features)
        normed = Normed(shape, self.spectral, self.kernel_init, name="normed")
        kernel = normed(train=train)
        if not window:
            x = x @ kernel
        elif self.scale == "same":
            x = convolve(x, kernel)
        else:
            # A 3 x 3 kernel with pooling or upsampling equals a strided 4 x 4 kernel.
            factor = 0.25 if self.scale == "half" else 1.0
            wide = kernel if self.kernel == 4 else factor * widen(kernel)
            x = (halve if self.scale == "half" else double)(x, wide)
        if not self.use_bias:
            return x
        return x + self.param("bias", nn.initializers.zeros, (self.features,))
