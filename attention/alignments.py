"""Alignments: from scores to weights. Those of the literature, by name.

| name | weights(s) | from |
|---|---|---|
| global | softmax(scores)(s) | Luong et al. (2015), eq. 7 |
| local_m | the same, among the keys at most D from p_t | the same, section 3.2 |
| local_p | local_m times exp(-(s - p_t)^2 / (2 (D / 2)^2)) | the same, eq. 10 |
| hard | 1 at one key, drawn with its softmax(scores) | Xu et al. (2015), section 4.1 |
| gumbel | the same; has a gradient | Jang et al. (2017); Maddison et al. (2017) |

Each is `align(scores [..., Q, K], *, mask=None, **more) -> weights [..., Q, K]`;
`functools.partial` makes of it what `attend` takes. `ALIGNMENTS` maps names to
functions. The softmax is taken in float32 or wider, the weights have the dtype of the
scores. A row without a key to attend to is 0 everywhere and sends back a gradient of 0;
a score of -inf counts as masked.

Where p_t comes from: local-m goes along the sentence, p_t = t; local-p predicts it
(`predicted_position`). What trains a hard alignment: `reinforce`, with the
`log_probability` of what was drawn and a baseline (`update_baseline`); a bonus for
`entropy` keeps the weights from closing on one key too early.

Axes: ... any batch; Q queries; K keys; D query width; A hidden width. The papers' S,
the number of source positions, is K less the padding; the table's D is `window`.

Differs from the papers: positions count from 0, not 1, so that p_t = S, which Luong's
eq. 9 admits, is one beyond the last key. Gumbel weights are one-hot in training too,
by the straight-through estimator of Jang et al. (section 2.2): the relaxed sample of
both papers shows in the gradient alone.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .core import masked_scores, masked_softmax
from .masks import distances, window_mask

Alignment = Callable[..., jax.Array]


def local_m_alignment(
    scores: jax.Array,
    *,
    position: jax.Array,
    window: int,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Softmax inside a window around a position: Luong et al. (2015), section 3.2.

    "Monotonic" where `position` is the number of the target word. A window over the
    whole sentence is `masked_softmax`.

    Args:
        scores: [..., Q, K] unnormalised.
        position: [..., Q] the paper's p_t, from 0; broadcasts against the queries.
        window: at least 0, the paper's D: how far the window reaches to each side.
        mask: bool, True = may attend; broadcasts against `scores`.

    Returns:
        [..., Q, K] weights, each row of sum 1, or 0 where the window has no key.

    Raises:
        TypeError: if `mask` is not bool or `scores` not floating.
        ValueError: if `mask` or `position` does not broadcast against `scores`, or
            `window` is negative.
    """
    return _window_softmax(scores, position, window, mask).astype(scores.dtype)


def predicted_position(
    query: jax.Array, length: int | jax.Array, w: jax.Array, v: jax.Array
) -> jax.Array:
    """Where to look: p_t = S sigmoid(v tanh(W query)), Luong et al. (2015), eq. 9.

    Args:
        query: [..., Q, D] decoder states.
        length: the paper's S, source positions of each query; broadcasts against
            [..., Q], so that the lengths [B] of a batch are given as [B, 1].
        w: [..., D, A], the paper's W_p.
        v: [..., A], its v_p.

    Returns:
        [..., Q] from 0 to `length`, in float32 or wider: bfloat16 cannot tell
        positions above 256 apart.

    Raises:
        ValueError: if `w` does not fit the query's width, `v` does not fit `w`, or
            `length` does not broadcast against the queries.
    """
    if w.ndim < 2 or w.shape[-2] != query.shape[-1]:
        raise ValueError(
            f"w {w.shape} must end in the axes [D={query.shape[-1]}, A=any], "
            f"as query {query.shape} does in D"
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
    """Softmax inside a window, times a Gaussian: Luong et al. (2015), eq. 10.

    The Gaussian has its peak of 1 at `position` and sigma = window / 2. As in the
    paper the product is not normalised again: a row's sum is the lower, the farther
    `position` lies from what the scores prefer. The gradient reaches `position` through
    the Gaussian; the window's edge, which jumps, has none.

    Args:
        scores: [..., Q, K] unnormalised.
        position: [..., Q] the paper's p_t, from 0, of `predicted_position`;
            broadcasts against the queries.
        window: at least 1, the paper's D: how far the window reaches to each side.
        mask: bool, True = may attend; broadcasts against `scores`.

    Returns:
        [..., Q, K] weights, each row of sum at most 1.

    Raises:
        TypeError: if `mask` is not bool or `scores` not floating.
        ValueError: if `mask` or `position` does not broadcast against `scores`, or
            `window` is below 1.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1 (sigma is half of it): {window}")
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
    """All weight on one key, drawn from softmax(scores): Xu et al. (2015), section 4.1.

    The draw is exact, by the Gumbel-max trick: the highest of scores plus noise, which
    is `jax.random.gumbel(rng, scores.shape)`. It has no gradient: the scores learn by
    `reinforce`.

    Args:
        scores: [..., Q, K] unnormalised.
        mask: bool, True = may attend; broadcasts against `scores`.
        rng: PRNG key of the draws, one a row; without it the key with the highest
            score is taken (the first of several), as at test.

    Returns:
        [..., Q, K] one-hot weights; a row is 0 where all is masked.

    Raises:
        TypeError: if `mask` is not bool or `scores` not floating.
        ValueError: if `mask` does not broadcast against `scores`.
    """
    wide = jax.lax.stop_gradient(masked_scores(scores, mask))
    return _highest(_perturbed(wide, rng)).astype(scores.dtype)


def gumbel_alignment(
    scores: jax.Array,
    *,
    mask: jax.Array | None = None,
    rng: jax.Array | None = None,
    temperature: float | jax.Array = 1.0,
) -> jax.Array:
    """Straight-through Gumbel-softmax: Jang et al. (2017), section 2.2.

    Forward it is `hard_alignment`, exactly. Backward the draw counts as the relaxed
    sample softmax((log a + g) / temperature) with the noise g that made it (their
    eq. 2; Maddison et al., 2017, section 3.2), which makes the gradient biased, but
    usually of less variance than that of `reinforce`. The lower the temperature, the
    lower the bias and the higher the variance.

    Args:
        scores: [..., Q, K] unnormalised.
        mask: bool, True = may attend; broadcasts against `scores`.
        rng: PRNG key of the noise; without it there is none, and the key with the
            highest score is taken.
        temperature: positive scalar; may be traced, and is then not checked.

    Returns:
        [..., Q, K] one-hot weights; a row is 0 where all is masked.

    Raises:
        TypeError: if `mask` is not bool or `scores` not floating.
        ValueError: if `mask` does not broadcast against `scores`, or `temperature` is
            not positive.
    """
    traced = isinstance(temperature, jax.core.Tracer)
    if not traced and not np.all(np.asarray(temperature) > 0):
        raise ValueError(f"temperature must be positive, got {temperature}")
    noisy = _perturbed(masked_scores(scores, mask), rng)
    # Scores of -inf are replaced, and masked instead: they have no slope with regard
    # to the temperature.
    allowed = noisy != -jnp.inf
    relaxed = masked_softmax(jnp.where(allowed, noisy, 0) / temperature, allowed)
    # The difference is 0 exactly, so that the weights stay one-hot; its gradient is
    # that of the relaxed sample.
    straight_through = _highest(noisy) + (relaxed - jax.lax.stop_gradient(relaxed))
    return straight_through.astype(scores.dtype)


def log_probability(
    scores: jax.Array, drawn: jax.Array, *, mask: jax.Array | None = None
) -> jax.Array:
    """The log of the probability with which `hard_alignment` draws what it drew.

    log p(s_t | a) in Xu et al. (2015), eq. 11: the log of softmax(scores) at the key
    that was drawn.

    Args:
        scores: [..., Q, K] unnormalised.
        drawn: [..., Q, K] one-hot weights; sends back no gradient. Batch axes broadcast
            against `scores`: several draws, say.
        mask: that of the draw.

    Returns:
        [..., Q] in float32 or wider; 0 where nothing was drawn since all is masked,
        -inf where a key was that is masked.

    Raises:
        TypeError: if `mask` is not bool or `scores` not floating.
        ValueError: if `mask` does not broadcast against `scores`, or `drawn` has other
            numbers of queries or keys.
    """
    scores = masked_scores(scores, mask)
    if drawn.shape[-2:] != scores.shape[-2:]:
        raise ValueError(
            f"drawn {drawn.shape} and scores {scores.shape} "
            "differ in the number of queries or keys"
        )
    # As in the softmax: a row of -inf has no highest score to take away.
    highest = jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)
    highest = jnp.maximum(highest, jnp.finfo(scores.dtype).min)
    scores = scores - jax.lax.stop_gradient(highest)
    total = jnp.sum(jnp.exp(scores), axis=-1, keepdims=True)
    log_weights = scores - jnp.log(jnp.where(total == 0, 1, total))
    drawn = jax.lax.stop_gradient(drawn)
    return jnp.sum(jnp.where(drawn == 0, 0, drawn * log_weights), axis=-1)


def entropy(weights: jax.Array) -> jax.Array:
    """How open the weights are: -sum_s a(s) log a(s), H[s] in Xu et al. (2015), 4.1.

    0 where one key has all weight, log K where all have the same.

    Args:
        weights: [..., Q, K], at least 0. One that is 0 counts 0, with a gradient of 0.

    Returns:
        [..., Q] in nats, float32 or wider.
    """
    weights = weights.astype(jnp.promote_types(weights.dtype, jnp.float32))
    # Not `> 0`: where numbers below `tiny` are flushed to 0, their log is -inf.
    some = weights >= jnp.finfo(weights.dtype).tiny
    return -jnp.sum(weights * jnp.log(jnp.where(some, weights, 1)), axis=-1)


def reinforce(
    log_probability: jax.Array, reward: jax.Array, baseline: jax.Array
) -> jax.Array:
    """A surrogate to minimise, of which the gradient alone means something.

    That gradient is the score-function estimate of the gradient of -E[reward]: -(reward
    - baseline) times the gradient of log p(drawn). Williams (1992); Xu et al. (2015),
    eq. 12 and the baseline after it. A baseline that does not depend on what was drawn
    leaves it unbiased and can lower its variance. The value is no loss: do not report
    it.

    Args:
        log_probability: [...] of `log_probability`, summed over all that was drawn for
            the sake of one reward.
        reward: [...] what the draw earned; in Xu et al. log p(y | s, a). Sends back no
            gradient, so that a loss which depends on parameters in other ways is to be
            added.
        baseline: [...] sends back no gradient.

    Returns:
        [...] of the shape to which the arguments broadcast.
    """
    return -jax.lax.stop_gradient(reward - baseline) * log_probability


def update_baseline(
    baseline: jax.Array, reward: jax.Array, decay: float = 0.9
) -> jax.Array:
    """The moving mean of the rewards: b_k in Xu et al. (2015), section 4.1.

    Args:
        baseline: scalar, b_(k-1).
        reward: scalar, the mean reward of the batch.
        decay: from 0 to 1; 0.9 in the paper.

    Returns:
        scalar, decay baseline + (1 - decay) reward.
    """
    return decay * baseline + (1 - decay) * reward


def _window_softmax(
    scores: jax.Array, position: jax.Array, window: int, mask: jax.Array | None
) -> jax.Array:
    """[..., Q, K] weights in float32 or wider, 0 outside of the window."""
    scores = masked_scores(scores, mask)
    _check_queries("position", jnp.shape(position), scores.shape[:-1])
    inside = window_mask(position, scores.shape[-1], window)
    return masked_softmax(scores, inside)


def _perturbed(scores: jax.Array, rng: jax.Array | None) -> jax.Array:
    """Scores plus Gumbel noise; the highest is a draw from their softmax."""
    if rng is None:
        return scores
    return scores + jax.random.gumbel(rng, scores.shape, scores.dtype)


def _highest(scores: jax.Array) -> jax.Array:
    """One-hot at the highest score of a row, 0 in a row of -inf; NaN stays NaN."""
    highest = jnp.max(scores, axis=-1, keepdims=True)
    index = jnp.argmax(scores, axis=-1)
    one_hot = jax.nn.one_hot(index, scores.shape[-1], dtype=scores.dtype)
    weights = jnp.where(highest == -jnp.inf, 0, one_hot)
    return jnp.where(jnp.isnan(highest), jnp.nan, weights)


def _check_queries(name: str, shape: tuple[int, ...], queries: tuple[int, ...]) -> None:
    # [B] against [B, 1] would broadcast to [B, B].
    try:
        fits = np.broadcast_shapes(shape, queries)[-1:] == queries[-1:]
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} {shape} does not broadcast to the queries {queries}")


ALIGNMENTS: dict[str, Alignment] = {
    "global": masked_softmax,
    "local_m": local_m_alignment,
    "local_p": local_p_alignment,
    "hard": hard_alignment,
    "gumbel": gumbel_alignment,
}
