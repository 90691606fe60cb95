"""Frechet distance and Inception score against their formulas."""

import numpy as np

from tasks.images.frechet import frechet_distance, inception_score

rng = np.random.default_rng


def test_the_frechet_distance_equals_the_formula():
    real = rng(0).standard_normal((200, 5)) @ rng(1).standard_normal((5, 5))
    generated = rng(2).standard_normal((300, 5)) @ rng(3).standard_normal((5, 5)) + 1
    covariances = [np.cov(x, rowvar=False) for x in (real, generated)]
    roots = np.linalg.eigvals(covariances[0] @ covariances[1])
    expected = np.square(real.mean(0) - generated.mean(0)).sum()
    expected += sum(map(np.trace, covariances)) - 2 * np.sqrt(roots.real).sum()
    np.testing.assert_allclose(frechet_distance(real, generated), expected, rtol=1e-9)
    np.testing.assert_allclose(frechet_distance(real, real), 0, atol=1e-9)
    np.testing.assert_allclose(frechet_distance(real, real + 2), 4 * 5, rtol=1e-9)


def test_the_inception_score_of_certain_classes_is_their_number():
    certain = np.eye(7)[rng(0).permutation(70) % 7]
    np.testing.assert_allclose(inception_score(certain), 7, rtol=1e-6)
    np.testing.assert_allclose(inception_score(np.full((9, 7), 1 / 7)), 1, rtol=1e-6)
