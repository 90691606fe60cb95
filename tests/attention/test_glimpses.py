"""Glimpses against a loop over pixels, and their limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention.glimpses import glimpse, patch_box

B, ROWS, COLUMNS, C = 4, 13, 17, 2
LOCATIONS = [[0.0, 0.0], [-1.0, 1.0], [0.37, -0.81], [5.0, 0.0]]  # the last is outside
LOCATIONS = np.array(LOCATIONS, np.float32)


def loop(image, location, size, scales):
    """The mean of each cell's pixels, 0 outside of the image."""
    result = np.zeros((scales, size, size, image.shape[-1]))
    sizes = zip(location, image.shape[:2], strict=True)
    centre = [round(float((x + 1) / 2 * n)) for x, n in sizes]
    for s, p, q in np.ndindex(scales, size, size):
        width = 2**s
        top = centre[0] + (p - size // 2) * width
        left = centre[1] + (q - size // 2) * width
        for i in range(top, top + width):
            for j in range(left, left + width):
                if 0 <= i < image.shape[0] and 0 <= j < image.shape[1]:
                    result[s, p, q] += image[i, j] / width**2
    return result


@pytest.mark.parametrize(("size", "scales"), [(2, 1), (4, 3), (8, 2)])
def test_a_glimpse_equals_the_loop_over_pixels(x64, draw, size, scales):
    image = draw(B, ROWS, COLUMNS, C)
    actual = glimpse(image, jnp.asarray(LOCATIONS), size=size, scales=scales)
    pairs = zip(np.asarray(image), LOCATIONS, strict=True)
    expected = [loop(*pair, size, scales) for pair in pairs]
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_batched_equals_vmapped(x64, draw):
    image, location = draw(B, ROWS, COLUMNS, C), jnp.asarray(LOCATIONS)
    single = jax.vmap(lambda *x: glimpse(*x, size=4, scales=2))(image, location)
    batched = glimpse(image, location, size=4, scales=2)
    np.testing.assert_allclose(single, batched, atol=1e-12)


def test_patches_nest_exactly(x64, draw):
    fine, coarse = glimpse(
        draw(ROWS, COLUMNS, C), jnp.array([0.2, -0.4]), size=8, scales=2
    )
    pooled = fine.reshape(4, 2, 4, 2, C).mean((1, 3))
    np.testing.assert_allclose(coarse[2:6, 2:6], pooled, atol=1e-12)


def test_a_patch_of_the_size_of_the_image_is_the_image(x64, draw):
    image = draw(12, 12, C)
    (patch,) = glimpse(image, jnp.zeros(2), size=12)
    np.testing.assert_array_equal(patch, image)


def test_only_pixels_in_the_frame_have_an_effect(draw):
    image, location = draw(ROWS, COLUMNS, C), jnp.array([0.5, -0.9])
    for scale in (0, 1):
        top, left, bottom, right = patch_box(
            location, (ROWS, COLUMNS), size=4, scale=scale
        )
        gradient = jax.grad(
            lambda x, s=scale: glimpse(x, location, size=4, scales=2)[s].sum()
        )(image)
        inside = np.zeros((ROWS, COLUMNS), bool)
        inside[max(int(top), 0) : int(bottom), max(int(left), 0) : int(right)] = True
        assert ((np.asarray(gradient) != 0).any(-1) == inside).all()


def test_a_location_has_no_gradient(draw):
    image = draw(ROWS, COLUMNS, C)
    slope = jax.grad(lambda x: glimpse(image, x, size=4, scales=2).sum())
    np.testing.assert_array_equal(slope(jnp.array([0.1, 0.2])), 0)


@pytest.mark.parametrize(
    ("size", "scales", "location", "message"),
    [
        (3, 1, (2,), "size is 3 and scales is 1: must be even and at least 1"),
        (4, 0, (2,), "size is 4 and scales is 0: must be even and at least 1"),
        (4, 1, (3,), r"location \(3,\) must be \(2,\) for images \(13, 17, 2\)"),
    ],
)
def test_sizes_and_locations_are_checked(draw, size, scales, location, message):
    with pytest.raises(ValueError, match=message):
        glimpse(draw(ROWS, COLUMNS, C), jnp.zeros(location), size=size, scales=scales)
