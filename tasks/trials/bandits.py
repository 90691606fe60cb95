"""Bernoulli bandits, and strategies for them.

Arm k of K pays 1 with probability p_k, else 0; the p_k of a bandit are uniform on
[0, 1]. An episode is one pull: Mishra et al. (2018), section 5.2.1.

Axes: K arms; N pulls of a trial; n pulls that remain; s successes, f failures of an
arm.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tasks.trials.trials import Family, Strategy, uniform

_GRID = 400  # known arms that the Gittins indices are calibrated with
_MAX_GITTINS = 200  # pulls; the indices of 1,000 take 8 GB


@functools.cache
def bandits(arms: int) -> Family:
    """Returns the family of bandits with K arms."""

    def pull(chances, state, action, rng):
        return state, jax.random.bernoulli(rng, chances[action]).astype(jnp.float32)

    return Family(
        sample=lambda rng: jax.random.uniform(rng, (arms,)),
        step=pull,
        observe=lambda state: jnp.zeros(0),
        actions=arms,
        length=1,
    )


def by_index(arms: int, index: Callable[..., jax.Array]) -> Strategy:
    """Returns the strategy that pulls an arm with the highest index.

    Args:
        arms: K.
        index: `index(s [K], f [K], t, rng) -> [K]`, with s successes and f failures of
            each arm, after t pulls.
    """

    def act(memory, state, t, rng):
        ties, rng = jax.random.split(rng)
        noise = 1e-6 * jax.random.uniform(ties, (arms,))  # breaks ties
        return jnp.argmax(index(*memory, t, rng) + noise)

    def learn(memory, t, state, action, reward, *_):
        success, failure = memory
        return success.at[action].add(reward), failure.at[action].add(1 - reward)

    return Strategy(lambda problem, rng: (jnp.zeros(arms),) * 2, act, learn)


def ucb1(s: jax.Array, f: jax.Array, t: jax.Array, rng: jax.Array) -> jax.Array:
    """Upper confidence bounds: Auer et al. (2002), figure 1; each arm once first."""
    n = s + f
    bound = s / jnp.maximum(n, 1) + jnp.sqrt(2 * jnp.log(t) / jnp.maximum(n, 1))
    return jnp.where(n == 0, jnp.inf, bound)


def thompson(s: jax.Array, f: jax.Array, t: jax.Array, rng: jax.Array) -> jax.Array:
    """A draw of each arm's chance from its posterior Beta(1 + s, 1 + f)."""
    return jax.random.beta(rng, 1 + s, 1 + f)


@functools.cache
def gittins_indices(horizon: int) -> np.ndarray:
    """Gittins indices of a finite horizon N, by calibration.

    The index of an arm with n pulls left is the chance c of a known arm between which
    and the arm one is indifferent. With V_n the value of choosing between them until
    the end, where the known arm, once chosen, stays the better one, and
    m = (s + 1) / (s + f + 2),

        V_n(s, f) = max(n c, m (1 + V_{n-1}(s + 1, f)) + (1 - m) V_{n-1}(s, f + 1))

    The index is the c at which both sides of the maximum are equal; between the
    values of a grid it is interpolated.

    Returns:
        [N, N, N] indices for n - 1, s, f; of states with s + f <= N - n. Others are 0.
    """
    c = np.linspace(0, 1, _GRID)[:, None, None]
    s, f = np.ogrid[:horizon, :horizon]
    m = (s + 1) / (s + f + 2)  # [N, N]
    value = np.zeros((_GRID, horizon + 1, horizon + 1))  # V_0
    indices = np.zeros((horizon, horizon, horizon))
    for n in range(1, horizon + 1):
        go_on = m * (1 + value[:, 1:, :-1]) + (1 - m) * value[:, :-1, 1:]
        gain = go_on - n * c  # positive below the index, then 0 or less
        above = np.clip((gain > 1e-12).sum(0), 1, _GRID - 1)  # first c above the index
        low, high = (
            np.take_along_axis(gain, x[None], 0)[0] for x in (above - 1, above)
        )
        share = low / np.maximum(low - high, 1e-12)
        index = (above - 1 + share) / (_GRID - 1)
        indices[n - 1] = np.where(s + f <= horizon - n, index, 0)
        value[:, :-1, :-1] = np.maximum(n * c, go_on)
    return indices


def gittins(horizon: int) -> Callable[..., jax.Array]:
    """Returns the Gittins index for `by_index`."""
    table = jnp.asarray(gittins_indices(horizon), jnp.float32)

    def index(s, f, t, rng):
        return table[horizon - 1 - t, s.astype(int), f.astype(int)]

    return index


@functools.cache
def strategies(arms: int, horizon: int) -> dict[str, Strategy]:
    """Returns the strategies by name; Gittins indices for at most 200 pulls."""
    indices = {"ucb1": ucb1, "thompson": thompson}
    if horizon <= _MAX_GITTINS:
        indices["gittins"] = gittins(horizon)
    by_name = {name: by_index(arms, index) for name, index in indices.items()}
    return {"random": uniform(arms), **by_name}
