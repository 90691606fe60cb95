"""Glimpses: patches of an image at several scales around a location.

Mnih et al. (2014), section 3.1, and Ba et al. (2015), section 3. A glimpse has a small
patch at full resolution and larger ones around it at lower resolution, like a retina.

Axes: ... any batch; I, J rows and columns of an image; C channels; S scales; P rows and
columns of a patch.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

__all__ = ["glimpse", "patch_box"]


def glimpse(
    image: jax.Array, location: jax.Array, *, size: int, scales: int = 1
) -> jax.Array:
    """Glimpse sensor rho(x, l): Mnih et al. (2014), figure 1A.

    Patch s has P 2^s rows and columns of the image around the location and is averaged
    down to P x P. Pixels outside of the image are 0. The patches nest exactly: a block
    of 2 x 2 pixels of a patch has the mean of one pixel of the next. The largest patch
    is cut at full resolution, so the cost grows with 4^S.

    Args:
        image: [..., I, J, C] floating.
        location: [..., 2], row and column of the centre, from -1 (the first edge) to 1
            (the last edge). It is rounded to a corner of pixels, with a gradient of 0.
        size: P, even.
        scales: S, at least 1.

    Returns:
        [..., S, P, P, C].

    Raises:
        ValueError: if `size` is odd, `scales` is below 1, or `location` does not have
            two numbers for each image.

    Example:
        >>> image = jnp.arange(64.0).reshape(8, 8, 1)
        >>> fine, coarse = glimpse(image, jnp.array([0.0, 0.0]), size=2, scales=2)
        >>> print(fine[..., 0].tolist(), coarse[..., 0].tolist())
        [[27.0, 28.0], [35.0, 36.0]] [[22.5, 24.5], [38.5, 40.5]]
    """
    if size % 2 or scales < 1:
        raise ValueError(
            f"size is {size} and scales is {scales}: must be even and at least 1"
        )
    if location.shape != (*image.shape[:-3], 2):
        raise ValueError(
            f"location {location.shape} must be {(*image.shape[:-3], 2)} for images "
            f"{image.shape}"
        )
    side = size * 2 ** (scales - 1)  # of the largest patch
    corner = _centre(location, image.shape[-3:-1]).astype(jnp.int32) - side // 2

    def cut(image, corner):
        outside = {"mode": "fill", "fill_value": 0, "wrap_negative_indices": False}
        rows, columns = corner[:, None] + jnp.arange(side)
        return image.at[rows].get(**outside).at[:, columns].get(**outside)

    window = jnp.vectorize(cut, signature="(i,j,c),(n)->(p,q,c)")(image, corner)
    patches = []
    for _ in range(scales):
        middle = slice((window.shape[-2] - size) // 2, (window.shape[-2] + size) // 2)
        patches.append(window[..., middle, middle, :])
        window = _halved(window)
    return jnp.stack(patches, -4)


def _centre(location: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Row and column [..., 2] of the corner of pixels next to a location."""
    return jnp.round((location + 1) / 2 * jnp.asarray(shape))


def _halved(x: jax.Array) -> jax.Array:
    """Means [..., I / 2, J / 2, C] of blocks of 2 x 2 pixels of [..., I, J, C]."""
    rows = x[..., ::2, :, :] + x[..., 1::2, :, :]
    return (rows[..., ::2, :] + rows[..., 1::2, :]) / 4


def patch_box(
    location: jax.Array, shape: tuple[int, int], *, size: int, scale: int = 0
) -> jax.Array:
    """Frame of a patch of `glimpse` in pixels of the image.

    Args:
        location: [..., 2], see `glimpse`.
        shape: (I, J).
        size: P.
        scale: number of the scale, from 0.

    Returns:
        [..., 4]: first row, first column, last row + 1, last column + 1; these may lie
        outside of the image.

    Example:
        >>> print(patch_box(jnp.array([0.0, 0.5]), (8, 8), size=2, scale=1))
        [2. 4. 6. 8.]
    """
    centre = _centre(location, shape)
    half = size * 2**scale // 2
    return jnp.concatenate([centre - half, centre + half], -1)
