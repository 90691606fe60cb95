"""Trials of several episodes in one problem, for agents and for fixed strategies.

A problem, such as a bandit, is drawn from a family. A trial is N episodes of it; what
the agent remembers persists from episode to episode, so it can learn which problem it
has: Duan et al. (2016), section 2.2; Mishra et al. (2018), section 4. Its input at each
step has the observation, the previous action as one-hot, the previous reward, and
whether an episode has just ended.

Axes: B trials; T steps of a trial, N times the steps of an episode; K actions; C width
of an observation.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tasks.common.policy import Environment, step_keys


class Family(NamedTuple):
    """A distribution over problems, as pure functions of single problems."""

    sample: Callable[[jax.Array], Any]  # `sample(rng) -> problem`
    # `step(problem, state, action, rng) -> (state, reward)`
    step: Callable[..., tuple[jax.Array, jax.Array]]
    observe: Callable[[jax.Array], jax.Array]  # `observe(state) -> [C]`
    actions: int  # K
    length: int  # steps of an episode; each starts in state 0


class Strategy(NamedTuple):
    """A fixed way to act in a trial, as pure functions of single trials."""

    # `start(problem, rng) -> memory`; only an oracle reads the problem
    start: Callable[..., Any]
    # `act(memory, state, t, rng) -> action` of step t, from 0
    act: Callable[..., jax.Array]
    # `learn(memory, t, state, action, reward, following, rng) -> memory`, with
    # the state after the action
    learn: Callable[..., Any] = lambda memory, *_: memory


def trial(family: Family, episodes: int) -> Environment:
    """Returns trials as an environment, whose observations are the agent's inputs.

    They are [C + K + 2]: the observation, the previous action, the previous reward, and
    1 after the end of an episode.
    """

    def reset(rng):
        start = jnp.zeros((), jnp.int32)
        history = jnp.zeros(family.actions + 2)
        state = family.sample(rng), start, start
        return state, jnp.concatenate([family.observe(start), history])

    def step(state, action, rng):
        problem, inner, t = state
        inner, reward = family.step(problem, inner, action, rng)
        ends = (t + 1) % family.length == 0
        inner = jnp.where(ends, 0, inner)
        previous = jax.nn.one_hot(action, family.actions)
        history = jnp.stack([reward, ends.astype(jnp.float32)])
        observation = jnp.concatenate([family.observe(inner), previous, history])
        done = t + 1 == episodes * family.length
        return (problem, inner, t + 1), observation, reward, done

    return Environment(reset, step, family.actions)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def play(
    family: Family, episodes: int, strategy: Strategy, seed: jax.Array
) -> jax.Array:
    """Returns the rewards [B, T] of a strategy in N episodes.

    The problems are those of an agent with the same seeds, uint32 [B, 2].
    """
    length = episodes * family.length

    def single(keys):  # [T + 1]
        problem = family.sample(keys[0])
        memory = strategy.start(problem, jax.random.fold_in(keys[0], 1))

        def step(carry, inputs):
            memory, state = carry
            t, rng = inputs
            rngs = jax.random.split(rng, 3)
            action = strategy.act(memory, state, t, rngs[0])
            new, reward = family.step(problem, state, action, rngs[1])
            memory = strategy.learn(memory, t, state, action, reward, new, rngs[2])
            state = jnp.where((t + 1) % family.length == 0, 0, new)
            return (memory, state), reward

        start = memory, jnp.zeros((), jnp.int32)
        return jax.lax.scan(step, start, (jnp.arange(length), keys[1:]))[1]

    return jax.vmap(single)(step_keys(seed, length))


def uniform(actions: int) -> Strategy:
    """Returns the strategy of random actions."""
    return Strategy(
        lambda problem, rng: (),
        lambda memory, state, t, rng: jax.random.randint(rng, (), 0, actions),
    )
