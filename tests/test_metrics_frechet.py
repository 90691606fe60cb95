"""Frechet distance and inception score against their formulas."""

import numpy as np

from metrics.frechet import frechet_distance, inception_score

rng = np.random.default_rng


def test_the_distance_of_gaussians_is_that_of_the_formula():
    one = rng(0).standard_normal((200, 5)) @ rng(1).standard_normal((5, 5))
    other = rng(2).standard_normal((300, 5)) @ rng(3).standard_normal((5, 5)) + 1
    covariances = [np.cov(x, rowvar=False) for x in (one, other)]
    roots = np.linalg.eigvals(covariances[0] @ covariances[1])
    expected = np.square(one.mean(0) - other.mean(0)).sum()
    expected += sum(map(np.trace, covariances)) - 2 * np.sqrt(roots.real).sum()
    np.testing.assert_allclose(frechet_distance(one, other), expected, rtol=1e-9)
    np.testing.assert_allclose(frechet_distance(one, one), 0, atol=1e-9)
    np.testing.assert_allclose(frechet_distance(one, one + 2), 4 * 5, rtol=1e-9)


def test_the_score_is_the_number_of_classes_seen_if_each_is_certain():
    sure = np.eye(7)[rng(0).permutation(70) % 7]
    np.testing.assert_allclose(inception_score(sure), 7, rtol=1e-6)
    np.testing.assert_allclose(inception_score(np.full((9, 7), 1 / 7)), 1, rtol=1e-6)
