"""Metrics of generated images, from the features and classes of a frozen network.

Axes: N, M images; F features; Y classes.
"""

import numpy as np

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
    the mean of p(y | image) over all images.

    Args:
        classes: [N, Y] class probabilities p(y | image).
    """
    log = np.log(np.maximum(classes, _TINY))
    mean = classes.mean(0)
    divergence = classes * (log - np.log(np.maximum(mean, _TINY)))
    return float(np.exp(divergence.sum(1).mean()))
