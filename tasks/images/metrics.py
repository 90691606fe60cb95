"""Metrics of generated images.

Those of corners (`tasks.images.data.corners`) compare colours; the others are made from
the features and classes of a frozen network.

Axes: B, N, M images; I rows and columns; F features; Y classes.
"""

import numpy as np

OTHERS = 9  # number of other images that each image of corners is compared with
_TINY = 1e-30  # keeps the logarithm of a probability of 0 finite


def frechet_distance(generated: np.ndarray, real: np.ndarray) -> float:
    """Frechet distance between two Gaussians: Heusel et al. (2017), eq. 6.

    The distance is |m - m'|^2 + tr(C + C' - 2 (C C')^(1/2)), with the means m, m' and
    covariances C, C' of the features. It is symmetric in its arguments.

    Args:
        generated: [N, F] features, N at least 2.
        real: [M, F] features, M at least 2.

    Returns:
        A number of at least 0, up to rounding; 0 for equal means and covariances.
    """
    means = generated.mean(0), real.mean(0)
    # The trace of (C C')^(1/2) is the sum of the singular values of A A'^T, where
    # C = A^T A. With A = Q R, also C = R^T R, and R has at most F rows.
    parts = [
        np.asarray(np.linalg.qr((x - m) / np.sqrt(len(x) - 1), mode="r"))
        for x, m in zip((generated, real), means, strict=True)
    ]
    cross = np.linalg.svd(parts[0] @ parts[1].T, compute_uv=False).sum()
    traces = sum(np.square(part).sum() for part in parts)
    return float(np.square(means[0] - means[1]).sum() + traces - 2 * cross)


def inception_score(classes: np.ndarray) -> float:
    """Inception score of Salimans et al. (2016), section 4: a number in [1, Y].

    The exponential of the mean over images of KL(p(y | image) || p(y)), where p(y) is
    the mean of p(y | image), the `classes` [N, Y], over all images.
    """
    log = np.log(np.maximum(classes, _TINY))
    mean = classes.mean(0)
    divergence = classes * (log - np.log(np.maximum(mean, _TINY)))
    return float(np.exp(divergence.sum(1).mean()))


def consistency(images: np.ndarray) -> dict[str, float]:
    """Agreement in colour of first and last corners of B >= 10 images.

    The images are uint8 [B, I, I, 3].

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
