import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

from attention.alignments import global_alignment
from attention.core import attend

B, Q, K, V = 2, 3, 5, 7


def test_global_alignment_equals_a_loop(x64, draw):
    scores, mask = np.asarray(draw(B, Q, K)), np.asarray(draw(B, 1, K)) > -0.5
    weights = global_alignment(jnp.asarray(scores), mask=jnp.asarray(mask))
    for b, q in np.ndindex(B, Q):
        exps = [np.exp(scores[b, q, k]) * mask[b, 0, k] for k in range(K)]
        np.testing.assert_allclose(
            weights[b, q], np.array(exps) / sum(exps), atol=1e-12
        )


def test_global_alignment_keeps_to_the_mask(draw):
    scores, mask = draw(B, Q, K), (draw(B, Q, K) > 0).at[1, 2].set(False)
    weights = np.asarray(global_alignment(scores, mask=mask))
    assert (weights >= 0).all() and (weights[~np.asarray(mask)] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), mask.any(-1), atol=1e-6)
    loss = jax.jit(lambda s: jnp.sum(global_alignment(s, mask=mask) ** 2))
    gradient = jax.grad(loss)(scores)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[1, 2], 0)


def test_global_alignment_is_batched_as_vmapped_and_differentiable(x64, draw):
    scores, mask = draw(B, Q, K), jnp.arange(K) < 4
    mapped = jax.vmap(lambda s: global_alignment(s, mask=mask))(scores)
    np.testing.assert_allclose(mapped, global_alignment(scores, mask=mask), atol=1e-12)
    check_grads(jax.jit(lambda s: global_alignment(s, mask=mask)), (scores,), order=1)


def test_attend_aligns_globally_unless_told_otherwise(draw):
    scores, value, mask = draw(B, Q, K), draw(B, K, V), jnp.arange(K) < 4
    found = attend(scores, value, mask=mask, align=global_alignment)
    for a, b in zip(found, attend(scores, value, mask=mask), strict=True):
        np.testing.assert_array_equal(a, b)
