"""Spectral normalisation of dense and convolutional layers: Miyato et al. (2018).

Axes: ... any axes; B batch; I, J image rows and columns; C channels.
"""

from collections.abc import Callable, Sequence

import jax
from flax import linen as nn

from attention.fast.convolution import convolve, double, halve, widen


class Kernel(nn.Module):
    """A kernel, as a module that `nn.SpectralNorm` can wrap."""

    shape: Sequence[int]
    init: Callable

    @nn.compact
    def __call__(self) -> jax.Array:
        """Returns the kernel, of `shape`."""
        return self.param("kernel", self.init, self.shape)


def normed_kernel(
    name: str, shape: Sequence[int], *, spectral: bool, init: Callable, train: bool
) -> jax.Array:
    """Spectrally normalised kernel W / sigma(W): Miyato et al. (2018), eq. 8.

    For use in a compact method. The estimate of sigma is in the collection "spectral",
    updated by one power iteration (algorithm 1) per call with `train`.

    Args:
        name: name of the submodule with the kernel.
        shape: shape of the kernel, outputs last.
        spectral: whether to divide by the norm.
        init: initializer of the kernel.
        train: whether to update the estimate.

    Returns:
        The kernel, of `shape`.
    """
    kernel = Kernel(shape, init, name=name)
    if not spectral:
        return kernel()
    # W / sigma(W), sigma(W) = u^T W v, with a power iteration for u and v: algorithm 1
    norm = nn.SpectralNorm(kernel, collection_name="spectral", name=f"{name}_norm")
    return norm(update_stats=train)


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
        kernel = normed_kernel(
            "normed",
            shape,
            spectral=self.spectral,
            init=self.kernel_init,
            train=train,
        )
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
