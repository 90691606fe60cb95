"""Alignment functions: from scores to attention weights.

| name | weights(s) | source |
|---|---|---|
| global | softmax(scores)(s) | Luong et al. (2015), eq. 7 |
| local_m | softmax over keys with abs(s - p_t) <= window | Luong et al., section 3.2 |
| local_p | local_m times exp(-2 (s - p_t)^2 / window^2) | Luong et al., eq. 10 |
| hard | 1 at one key, sampled from softmax(scores) | Xu et al. (2015), section 4.1 |
| gumbel | as hard, with a straight-through gradient | Jang et al. (2017), eq. 2 |

An alignment function `align(scores, *, mask=None, **options)` maps scores [..., Q, K]
to weights [..., Q, K]; bind its options with `functools.partial` to pass it to
`attend`. `ALIGNMENTS` maps names to functions; `LOCAL_ALIGNMENTS` and
`SAMPLED_ALIGNMENTS` are those with further options. Softmaxes are computed in float32
or wider; the weights have the dtype of the scores. A row whose keys are all masked is 0
everywhere, with a gradient of 0. A score of -inf counts as masked.

For local-m, the monotonic alignment, the position p_t is t; for local-p it is predicted
from the query (`predicted_position`). Hard alignments are trained with `reinforce`,
from the `log_probability` of the sample and a baseline (`update_baseline`). Adding the
`entropy` to the objective keeps the weights from collapsing to one key early.

Axes: ... any batch; Q queries; K keys, which are S source positions and any padding; D
query width (Luong's D is the argument `window`); A hidden width.

Differs from the papers: positions count from 0 instead of 1, so that p_t = S, the upper
limit of Luong's eq. 9, is one position after the last key. Gumbel weights are one-hot
in training as well; the relaxed sample of Jang et al. and Maddison et al. (2017) only
provides the gradient.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ._checks import broadcasts
from .core import masked_scores, masked_softmax
from .masks import distances, window_mask

__all__ = [
    "ALIGNMENTS",
    "AlignmentFunction",
    "LOCAL_ALIGNMENTS",
    "SAMPLED_ALIGNMENTS",
    "entropy",
    "gumbel_alignment",
    "hard_alignment",
    "local_m_alignment",
    "local_p_alignment",
    "log_probability",
    "predicted_position",
    "reinforce",
    "update_baseline",
]

AlignmentFunction = Callable[..., jax.Array]
"""A function `align(scores, *, mask=None, **options)` -> [..., Q, K] weights."""


def local_m_alignment(
    scores: jax.Array,
    *,
    position: jax.Array,
    window: int,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Local-m alignment, a softmax in a window: Luong et al. (2015), section 3.2.

    For the paper's monotonic alignment, pass the target step as `position`. A window
    that covers the whole sentence makes this equal to `masked_softmax`.

    Args:
        scores: [..., Q, K] unnormalised.
        position: [..., Q], the paper's p_t, counted from 0; broadcasts against the
            queries.
        window: the paper's D, the number of positions to each side, at least 0.
        mask: bool, True = may attend; broadcasts against `scores`.

    Returns:
        [..., Q, K] weights. Each row sums to 1, or is 0 if the window holds no key.

    Raises:
        TypeError: if `mask` is not bool or `scores` is not floating.
        ValueError: if `mask` or `position` does not broadcast against `scores`, or
            `window` is negative.

    Example:
        >>> position = jnp.array([1.0])
        >>> print(local_m_alignment(jnp.zeros((1, 5)), position=position, window=1))
        [[0.33 0.33 0.33 0.   0.  ]]
    """
    return _window_softmax(scores, position, window, mask).astype(scores.dtype)


def predicted_position(
    query: jax.Array, length: int | jax.Array, w: jax.Array, v: jax.Array
) -> jax.Array:
    """Predicted position p_t = S sigmoid(v tanh(W query)): Luong et al. (2015), eq. 9.

    Args:
        query: [..., Q, D] decoder states.
        length: the paper's S, the number of source positions; broadcasts against
            [..., Q], so that the lengths [B] of a batch must be given as [B, 1].
        w: [..., D, A], the paper's W_p.
        v: [..., A], the paper's v_p.

    Returns:
        [..., Q] positions from 0 to `length`, in float32 or wider, since bfloat16
        cannot represent all positions above 256.

    Raises:
        ValueError: if `w` does not fit the width of `query`, `v` does not fit `w`, or
            `length` does not broadcast against the queries.

    Example:
        >>> query, w = jnp.array([[0.0], [1.0], [9.0]]), jnp.ones((1, 1))
        >>> print(predicted_position(query, 8, w, v=jnp.array([2.0])))
        [4.   6.57 7.05]
    """
    if w.ndim < 2 or w.shape[-2] != query.shape[-1]:
        raise ValueError(
            f"w {w.shape} must end in the axes [D={query.shape[-1]}, A=any] "
            f"for query {query.shape}"
        )
    if v.ndim < 1 or v.shape[-1] != w.shape[-1]:
        raise ValueError(f"v {v.shape} must end in the axes [A={w.shape[-1]}]")
    hidden = jnp.tanh(jnp.einsum("...qd,...da->...qa", query, w))
    logit = jnp.einsum("...qa,...a->...q", hidden, v)
    length = jnp.asarray(length)
    _check_queries("length", length.shape, logit.shape)
    logit = logit.astype(jnp.promote_types(logit.dtype, jnp.float32))
    return length * jax.nn.sigmoid(logit)


def local_p_alignment(
    scores: jax.Array,
    *,
    position: jax.Array,
    window: int,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Local-p alignment, local-m times a Gaussian: Luong et al. (2015), eq. 10.

    The Gaussian has sigma = window / 2 and a peak of 1 at `position`. As in the paper,
    the product is not normalised again: a row sums to at most 1, and to almost 0 if
    `position` is far from the highest scores. The gradient with respect to `position`
    comes from the Gaussian alone; the edges of the window contribute nothing.

    Args:
        scores: [..., Q, K] unnormalised.
        position: [..., Q], the paper's p_t, counted from 0, usually from
            `predicted_position`; broadcasts against the queries.
        window: the paper's D, the number of positions to each side, at least 1.
        mask: bool, True = may attend; broadcasts against `scores`.

    Returns:
        [..., Q, K] weights. Each row sums to at most 1.

    Raises:
        TypeError: if `mask` is not bool or `scores` is not floating.
        ValueError: if `mask` or `position` does not broadcast against `scores`, or
            `window` is below 1.

    Example:
        >>> position = jnp.array([1.0])
        >>> print(local_p_alignment(jnp.zeros((1, 5)), position=position, window=2))
        [[0.15 0.25 0.15 0.03 0.  ]]
    """
    if window < 1:
        raise ValueError(f"window is {window}: must be at least 1")
    weights = _window_softmax(scores, position, window, mask)
    sigma = window / 2
    gaussian = jnp.exp(-((distances(position, scores.shape[-1]) / sigma) ** 2) / 2)
    return (weights * gaussian).astype(scores.dtype)


def hard_alignment(
    scores: jax.Array,
    *,
    mask: jax.Array | None = None,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Hard alignment, one key sampled from the softmax: Xu et al. (2015), section 4.1.

    The sample is exact, by the Gumbel-max trick: the maximum of the scores plus noise
    from `jax.random.gumbel(rng, scores.shape)`. The weights have no gradient; the
    scores are trained with `reinforce`.

    Args:
        scores: [..., Q, K] unnormalised.
        mask: bool, True = may attend; broadcasts against `scores`.
        rng: PRNG key; one attention key is sampled per row. With None, as in
            evaluation, the key with the highest score is selected (the first in a tie).

    Returns:
        [..., Q, K] one-hot weights; 0 in a row whose keys are all masked.

    Raises:
        TypeError: if `mask` is not bool or `scores` is not floating.
        ValueError: if `mask` does not broadcast against `scores`.

    Example:
        >>> scores = jnp.array([[1.0, 3.0, 2.0]])
        >>> print(hard_alignment(scores))
        [[0. 1. 0.]]
        >>> print(hard_alignment(scores, rng=jax.random.key(0)).sum())
        1.0
    """
    wide = jax.lax.stop_gradient(masked_scores(scores, mask))
    return _one_hot_argmax(_perturbed(wide, rng)).astype(scores.dtype)


def gumbel_alignment(
    scores: jax.Array,
    *,
    mask: jax.Array | None = None,
    rng: jax.Array | None = None,
    temperature: float | jax.Array = 1.0,
) -> jax.Array:
    """Straight-through Gumbel-softmax: Jang et al. (2017), section 2.2 and eq. 2.

    The weights are the same as in `hard_alignment`. Their gradient is the gradient of
    the relaxed sample softmax((log a + g) / temperature), with a = softmax(scores) and
    the same noise g (eq. 2; Maddison et al., 2017, section 3.2). It is biased, but
    usually has less variance than the gradient from `reinforce`. A lower temperature
    means less bias and more variance.

    Args:
        scores: [..., Q, K] unnormalised.
        mask: bool, True = may attend; broadcasts against `scores`.
        rng: PRNG key of the noise. With None there is no noise: the key with the
            highest score is selected.
        temperature: scalar above 0; not checked if it is traced.

    Returns:
        [..., Q, K] one-hot weights; 0 in a row whose keys are all masked.

    Raises:
        TypeError: if `mask` is not bool or `scores` is not floating.
        ValueError: if `mask` does not broadcast against `scores`, or `temperature` is
            not above 0.

    Example:
        >>> scores = jnp.array([[1.0, 3.0, 2.0]])
        >>> print(gumbel_alignment(scores))
        [[0. 1. 0.]]
        >>> print(jax.grad(lambda s: gumbel_alignment(s)[0, 1])(scores))
        [[-0.06  0.22 -0.16]]
    """
    traced = isinstance(temperature, jax.core.Tracer)
    if not traced and not np.all(np.asarray(temperature) > 0):
        raise ValueError(f"temperature is {temperature}: must be above 0")
    noisy = _perturbed(masked_scores(scores, mask), rng)
    # Scores of -inf become masked zeros: -inf / temperature has no finite gradient.
    allowed = noisy != -jnp.inf
    relaxed = masked_softmax(jnp.where(allowed, noisy, 0) / temperature, allowed)
    # Exactly 0, with the gradient of the relaxed sample: the weights stay one-hot.
    zero = relaxed - jax.lax.stop_gradient(relaxed)
    return (_one_hot_argmax(noisy) + zero).astype(scores.dtype)


def log_probability(
    scores: jax.Array, sample: jax.Array, *, mask: jax.Array | None = None
) -> jax.Array:
    """Log-probability log p(s_t | a) of a hard alignment: Xu et al. (2015), eq. 11.

    This is the logarithm of softmax(scores) at the key sampled by `hard_alignment`.

    Args:
        scores: [..., Q, K] unnormalised.
        sample: [..., Q, K] one-hot weights, treated as constants. Batch axes broadcast
            against `scores`, so that a leading axis can hold several samples.
        mask: the mask with which `sample` was sampled; see `hard_alignment`.

    Returns:
        [..., Q] in float32 or wider; 0 in a row whose keys are all masked, -inf where
        `sample` is a masked key.

    Raises:
        TypeError: if `mask` is not bool or `scores` is not floating.
        ValueError: if `mask` does not broadcast against `scores`, or the numbers of
            queries or keys of `sample` and `scores` differ.

    Example:
        >>> scores = jnp.log(jnp.array([[0.1, 0.6, 0.3]]))
        >>> print(jnp.exp(log_probability(scores, hard_alignment(scores))))
        [0.6]
    """
    scores = masked_scores(scores, mask)
    if sample.shape[-2:] != scores.shape[-2:]:
        raise ValueError(
            f"sample {sample.shape} and scores {scores.shape} "
            "differ in the number of queries or keys"
        )
    maximum = jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)
    # As in `masked_softmax`: a finite number is subtracted from a row of -inf.
    maximum = jnp.maximum(maximum, jnp.finfo(scores.dtype).min)
    scores = scores - jax.lax.stop_gradient(maximum)
    total = jnp.sum(jnp.exp(scores), axis=-1, keepdims=True)
    log_weights = scores - jnp.log(jnp.where(total == 0, 1, total))
    sample = jax.lax.stop_gradient(sample)
    return jnp.sum(jnp.where(sample == 0, 0, sample * log_weights), axis=-1)


def entropy(weights: jax.Array) -> jax.Array:
    """Entropy -sum_s a(s) log a(s) of attention weights: H[s] in Xu et al. (2015), 4.1.

    The entropy is 0 for one-hot weights and log K for uniform ones. A weight of 0
    contributes 0, with a gradient of 0.

    Args:
        weights: [..., Q, K], at least 0.

    Returns:
        [..., Q] in nats, in float32 or wider.

    Example:
        >>> print(entropy(jnp.array([[0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])))
        [0.69 1.39]
    """
    weights = weights.astype(jnp.promote_types(weights.dtype, jnp.float32))
    # Not `> 0`: if denormal numbers are flushed to 0, their log is -inf.
    positive = weights >= jnp.finfo(weights.dtype).tiny
    return -jnp.sum(weights * jnp.log(jnp.where(positive, weights, 1)), axis=-1)


def reinforce(
    log_probability: jax.Array, reward: jax.Array, baseline: jax.Array
) -> jax.Array:
    """REINFORCE surrogate loss; only its gradient is meaningful: Xu et al. (2015), 4.1.

    Minimising it maximises the expected reward: its gradient, -(reward - baseline)
    times the gradient of log p(sample), estimates the gradient of -E[reward] (Williams,
    1992; Xu et al., eq. 12). A baseline that does not depend on the sample leaves the
    estimate unbiased and can lower its variance.

    Args:
        log_probability: [...] from `log_probability`, summed over all samples that
            share one reward.
        reward: [...] reward of the sample, treated as a constant; log p(y | s, a) in
            Xu et al., where -log p(y | s, a) is a second term of the loss.
        baseline: [...] expected reward, treated as a constant.

    Returns:
        [...] -(reward - baseline) log p, in the broadcast shape of the arguments.

    Example:
        >>> scores = jnp.zeros((1, 3))
        >>> def loss(scores):
        ...     log_p = log_probability(scores, jnp.array([[0.0, 1.0, 0.0]]))
        ...     return reinforce(log_p, reward=2.0, baseline=1.0).sum()
        >>> print(-jax.grad(loss)(scores))  # more of the sampled key
        [[-0.33  0.67 -0.33]]
    """
    return -jax.lax.stop_gradient(reward - baseline) * log_probability


def update_baseline(
    baseline: jax.Array, reward: jax.Array, decay: float = 0.9
) -> jax.Array:
    """Moving average of the rewards, b_k: Xu et al. (2015), section 4.1.

    Args:
        baseline: scalar, the average before this batch, b_{k-1}.
        reward: scalar, mean reward of the batch.
        decay: weight of `baseline`, in [0, 1]; 0.9 in the paper.

    Returns:
        Scalar decay * baseline + (1 - decay) * reward, b_k.

    Example:
        >>> print(round(update_baseline(0.0, reward=1.0), 2))
        0.1
    """
    return decay * baseline + (1 - decay) * reward


def _window_softmax(
    scores: jax.Array, position: jax.Array, window: int, mask: jax.Array | None
) -> jax.Array:
    """Softmax in the window: [..., Q, K] in float32 or wider, 0 outside the window."""
    scores = masked_scores(scores, mask)
    _check_queries("position", jnp.shape(position), scores.shape[:-1])
    inside = window_mask(position, scores.shape[-1], window)
    return masked_softmax(scores, inside)


def _perturbed(scores: jax.Array, rng: jax.Array | None) -> jax.Array:
    """Scores plus Gumbel noise, whose argmax is a sample from softmax(scores)."""
    if rng is None:
        return scores
    return scores + jax.random.gumbel(rng, scores.shape, scores.dtype)


def _one_hot_argmax(scores: jax.Array) -> jax.Array:
    """One-hot argmax of each row; a row of -inf becomes 0, one with NaN all NaN."""
    maximum = jnp.max(scores, axis=-1, keepdims=True)
    index = jnp.argmax(scores, axis=-1)
    one_hot = jax.nn.one_hot(index, scores.shape[-1], dtype=scores.dtype)
    weights = jnp.where(maximum == -jnp.inf, 0, one_hot)
    return jnp.where(jnp.isnan(maximum), jnp.nan, weights)


def _check_queries(name: str, shape: tuple[int, ...], queries: tuple[int, ...]) -> None:
    # Without this check, [B] would broadcast against [B, 1] to [B, B].
    if not broadcasts(shape, queries):
        raise ValueError(f"{name} {shape} does not broadcast to the queries {queries}")


LOCAL_ALIGNMENTS: dict[str, AlignmentFunction] = {
    "local_m": local_m_alignment,
    "local_p": local_p_alignment,
}
"""Alignment functions with options `position` and `window`, by name."""

SAMPLED_ALIGNMENTS: dict[str, AlignmentFunction] = {
    "hard": hard_alignment,
    "gumbel": gumbel_alignment,
}
"""Alignment functions that sample a key if they get an `rng`, by name."""

ALIGNMENTS: dict[str, AlignmentFunction] = (
    {"global": masked_softmax} | LOCAL_ALIGNMENTS | SAMPLED_ALIGNMENTS
)
"""Alignment functions by name."""
