"""Tabular Markov decision processes, and strategies for them.

The mean rewards of states and actions are N(1, 1), rewards have variance 1, and the
chances of the next state are from a flat Dirichlet distribution: Duan et al. (2016),
section 3.2; Mishra et al. (2018), section 5.2.2. An episode starts in state 0 and has
`LENGTH` steps.

Axes: S states; K actions; H steps of an episode.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tasks.trials.trials import Family, Strategy, uniform

STATES, LENGTH = 10, 10  # the papers'


class MDP(NamedTuple):
    """A Markov decision process."""

    mean: jax.Array  # [S, K] mean rewards
    chances: jax.Array  # [S, K, S] of the next state


@functools.cache
def mdps(actions: int, states: int = STATES) -> Family:
    """Returns the family of MDPs with S states and K actions."""

    def sample(rng):
        rewards, transitions = jax.random.split(rng)
        mean = 1 + jax.random.normal(rewards, (states, actions))
        shape = (states, actions)
        return MDP(mean, jax.random.dirichlet(transitions, jnp.ones(states), shape))

    def step(mdp, state, action, rng):
        noise, transition = jax.random.split(rng)
        reward = mdp.mean[state, action] + jax.random.normal(noise)
        logits = jnp.log(mdp.chances[state, action])
        return jax.random.categorical(transition, logits).astype(jnp.int32), reward

    def observe(state):
        return jax.nn.one_hot(state, states)

    return Family(sample, step, observe, actions, LENGTH)


def value_iteration(mdp: MDP, length: int = LENGTH) -> tuple[jax.Array, jax.Array]:
    """Optimal actions and values of episodes of `length` steps.

    V_h(s) = max_k (mean(s, k) + sum_s' chances(s, k, s') V_{h+1}(s')), and V_H = 0.

    Returns:
        int [H, S] actions, and the values [S] of whole episodes.
    """

    def back(value, _):
        q = mdp.mean + mdp.chances @ value  # [S, K]
        return q.max(1), q.argmax(1)

    start = jnp.zeros(len(mdp.mean))
    value, actions = jax.lax.scan(back, start, None, length, reverse=True)
    return actions, value


def optimal() -> Strategy:
    """Returns the strategy that has read the MDP: value iteration."""
    return Strategy(
        lambda mdp, rng: value_iteration(mdp)[0],
        lambda memory, state, t, rng: memory[t % LENGTH, state],
    )


def psrl(actions: int, states: int) -> Strategy:
    """Posterior sampling: Osband et al. (2013).

    Each episode is optimal for an MDP that is drawn from the posterior.
    """

    def draw(counts, total, rng):
        rewards, transitions = jax.random.split(rng)
        n = counts.sum(-1)  # [S, K]
        noise = jax.random.normal(rewards, n.shape) / jnp.sqrt(1 + n)
        mean = (1 + total) / (1 + n) + noise
        chances = jax.random.dirichlet(transitions, 1 + counts)
        return value_iteration(MDP(mean, chances))[0]

    def start(mdp, rng):
        counts = jnp.zeros((states, actions, states))
        total = jnp.zeros((states, actions))
        return counts, total, draw(counts, total, rng)

    def learn(memory, t, state, action, reward, following, rng):
        counts, total, policy = memory
        counts = counts.at[state, action, following].add(1)
        total = total.at[state, action].add(reward)
        ends = (t + 1) % LENGTH == 0
        policy = jax.lax.cond(ends, draw, lambda *_: policy, counts, total, rng)
        return counts, total, policy

    return Strategy(
        start, lambda memory, state, t, rng: memory[2][t % LENGTH, state], learn
    )


@functools.cache
def strategies(actions: int, horizon: int, states: int = STATES) -> dict[str, Strategy]:
    """Returns the strategies by name; "optimal" has read the MDP."""
    del horizon
    sampling = psrl(actions, states)
    return {"random": uniform(actions), "psrl": sampling, "optimal": optimal()}
