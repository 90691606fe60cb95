"""Metrics of generated images of corners; see `tasks.images.data.corners`.

Axes: B images; I rows and columns.
"""

import numpy as np

OTHERS = 9  # number of other images that each image is compared with


def consistency(images: np.ndarray) -> dict[str, float]:
    """Agreement in colour between the first and the last corner of images.

    Args:
        images: uint8 [B, I, I, 3], B at least 10.

    Returns:
        `consistent`: percentage of images whose last corner is nearer in colour to
        their own first corner than to the first corners of nine other images; 10 by
        chance, whatever the distribution of colours. `spread`: standard deviation of
        the corners' red value, divided by its standard deviation in real images.
    """
    side = images.shape[1] // 4
    first = images[:, :side, :side].astype(np.float32).mean((1, 2))
    last = images[:, -side:, -side:].astype(np.float32).mean((1, 2))
    distance = [
        np.linalg.norm(last - np.roll(first, shift, axis=0), axis=-1)
        for shift in range(OTHERS + 1)
    ]
    red = np.concatenate([first, last])[:, 0]
    spread = red.std() / (256 / 12**0.5)
    return {
        "consistent": 100 * float((distance[0] < np.min(distance[1:], axis=0)).mean()),
        "spread": float(spread),
    }
