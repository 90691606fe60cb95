"""Policy gradients, against loops, enumeration and each other."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from tasks.common.policy import (
    Auxiliary,
    Environment,
    PolicyGradient,
    PolicyLoss,
    Rollout,
    advantages,
    seed_batches,
    surrogate,
)

B, T, A = 5, 7, 3
WEIGHTS = PolicyLoss()


def test_advantages_equal_a_loop(draw):
    reward, value, last = draw(B, T), draw(B, T), draw(B)
    done = jnp.asarray(np.random.default_rng(0).random((B, T)) < 0.3)
    discount, trace = 0.9, 0.7
    actual = advantages(reward, value, done, last, discount=discount, trace=trace)
    for b, t in np.ndindex(B, T):
        total, factor = 0.0, 1.0
        for k in range(t, T):
            following = last[b] if k == T - 1 else value[b, k + 1]
            bootstrap = 0.0 if done[b, k] else discount * following
            total += factor * (reward[b, k] + bootstrap - value[b, k])
            factor *= discount * trace
            if done[b, k]:
                break
        np.testing.assert_allclose(actual[b, t], total, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_the_first_epoch_of_ppo_is_that_of_a2c(draw):
    old, advantage = draw(B, T), draw(B, T)
    ppo = jax.grad(lambda x: surrogate(x, old, advantage, 0.2).sum())(old)
    a2c = jax.grad(lambda x: (advantage * x).sum())(old)
    np.testing.assert_allclose(ppo, a2c, rtol=1e-6)


def test_a_ratio_beyond_the_clip_has_a_gradient_only_on_the_way_back():
    old, advantage = jnp.zeros(4), jnp.asarray([1.0, -1.0, 1.0, -1.0])
    new = jnp.log(jnp.asarray([1.3, 1.3, 0.7, 0.7]))
    grads = jax.grad(lambda x: surrogate(x, old, advantage, 0.2).sum())(new)
    np.testing.assert_allclose(grads, [0, -1.3, 0.7, 0], atol=1e-6)


class Table(nn.Module):
    """Logits and values by observation, an integer; the memory counts the steps."""

    observations: int = A + 1

    @nn.nowrap
    def start(self, batch):
        return jnp.zeros(batch, jnp.int32)

    def setup(self):
        normal = nn.initializers.normal(1.0)
        self.logits = self.param("logits", normal, (self.observations, A))
        self.value = self.param("value", normal, (self.observations,))

    def __call__(self, observation):
        return self.logits[observation], self.value[observation]

    def step(self, memory, observation):
        return memory + 1, *self(observation)


# The observation is the previous action, A before the first.
REWARDS = jax.random.normal(jax.random.key(3), (A + 1, A))


def chain(horizon):
    """An environment of `horizon` steps whose reward depends on two actions."""

    def reset(rng):
        start = jnp.asarray(A, jnp.int32)
        return (start, jnp.zeros((), jnp.int32)), start

    def step(state, action, rng):
        previous, t = state
        action = action.astype(jnp.int32)
        reward = REWARDS[previous, action]
        return (action, t + 1), action, reward, t + 1 == horizon

    return Environment(reset, step, A)


def agent(horizon, weights=WEIGHTS, rate=0.1, **options):
    optimizer = optax.sgd(rate)
    return PolicyGradient(
        chain(horizon), Table(), optimizer, weights, horizon=horizon, **options
    )


def test_the_expected_policy_gradient_is_that_of_the_expected_reward():
    horizon = 2
    weights = PolicyLoss(discount=1.0, trace=1.0, value=0.0, entropy=0.0)
    objective = agent(horizon, weights)
    params = objective.init(jax.random.key(0)).params
    action = np.array([*itertools.product(range(A), repeat=horizon)])  # all of them
    first = np.full((len(action), 1), A)
    observation = np.concatenate([first, action[:, :-1]], 1)
    reward = REWARDS[observation, action]
    done = np.arange(horizon) == horizon - 1
    done = np.broadcast_to(done, action.shape)

    def log_probability(params):
        logs = jax.nn.log_softmax(params["policy"]["logits"])
        return logs[observation, action]  # [B, T]

    def expected(params):
        return (jnp.exp(log_probability(params).sum(1)) * reward.sum(1)).sum()

    value = params["policy"]["value"][observation]  # any baseline
    last = jnp.zeros(len(action))
    advantage = advantages(reward, value, done, last, discount=1.0, trace=1.0)
    old = log_probability(params)
    share = jnp.exp(old.sum(1, keepdims=True))  # probability of a rollout
    rollout = Rollout(observation, action, reward, done, action, old, value)
    parts = None, rollout, share * advantage, value
    loss = lambda params: objective.loss(params, parts, None)[0]  # noqa: E731
    actual = jax.grad(loss)(params)["policy"]["logits"]
    exact = jax.grad(expected)(params)["policy"]["logits"]
    np.testing.assert_allclose(-actual, exact, atol=1e-6)


def test_actions_are_drawn_from_the_policy():
    objective, count = agent(2), 4003
    params = objective.init(jax.random.key(1)).params
    seed = seed_batches(count, seed=0)[0]["seed"]
    rollout, _ = objective.rollout(params, seed)
    shares = np.bincount(rollout.action[:, 0], minlength=A) / count
    expected = jax.nn.softmax(params["policy"]["logits"][A])
    deviation = np.sqrt(expected * (1 - expected) / count)
    assert (abs(shares - expected) < 4 * deviation).all()
    np.testing.assert_array_equal(rollout.observation[:, 1], rollout.action[:, 0])
    np.testing.assert_array_equal(rollout.following, rollout.action)
    logs = jax.nn.log_softmax(params["policy"]["logits"])
    chosen = logs[rollout.observation, rollout.action]
    np.testing.assert_allclose(rollout.log_probability, chosen, rtol=1e-6)
    np.testing.assert_array_equal(rollout.done, [[False, True]] * count)


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_best_actions_are_learned(epochs):
    weights = PolicyLoss(epochs=epochs, entropy=0.0)
    objective = agent(2, weights, rate=1.0)
    state, data = objective.init(jax.random.key(0)), seed_batches(61, seed=0)
    step = jax.jit(objective.step)
    for i in range(150):
        state, metrics = step(state, data[i], jax.random.key(i))
    assert int(state.step) == 150
    total, count = metrics["reward"]
    best = (REWARDS[A][:, None] + REWARDS[:A]).max()
    assert total / count > best - 0.1


def test_environments_go_on_from_update_to_update():
    episode, horizon = 3, 5
    counts = chain(episode)
    objective = PolicyGradient(
        counts, Table(), optax.sgd(0.1), PolicyLoss(), horizon=horizon, environments=2
    )
    state = objective.init(jax.random.key(0))
    data = seed_batches(2, seed=0)
    running, ends = state.extra, []
    for i in range(3):
        rollout, running = objective.rollout(state.params, data[i]["seed"], running)
        ends += [*np.asarray(rollout.done)[0]]
        fresh = np.asarray(rollout.observation)[:, 1:] == A
        np.testing.assert_array_equal(fresh, rollout.done[:, :-1])
    assert ends == [t % episode == episode - 1 for t in range(3 * horizon)]
    np.testing.assert_array_equal(running.memory, 0)  # 15 steps are 5 episodes
    new, _ = jax.jit(objective.step)(state, data[0], jax.random.key(0))
    np.testing.assert_array_equal(new.extra.memory, horizon % episode)


def test_an_environment_that_ends_is_reset_and_the_others_go_on():
    def reset(rng):
        start = jnp.asarray(0, jnp.int32)
        return (jax.random.randint(rng, (), 2, A + 2), start), start

    def step(state, action, rng):
        length, t = state
        return (length, t + 1), t + 1, jnp.zeros(()), t + 1 == length

    environments, horizon = 5, 23
    objective = PolicyGradient(
        Environment(reset, step, A),
        Table(),
        optax.sgd(0.1),
        PolicyLoss(),
        horizon=horizon,
        environments=environments,
    )
    state = objective.init(jax.random.key(0))
    seed = seed_batches(environments, seed=0)[0]["seed"]
    rollout, running = objective.rollout(state.params, seed, state.extra)
    lengths = set()
    for time, done, memory in zip(
        np.asarray(rollout.observation), rollout.done, running.memory, strict=True
    ):
        expected = 0
        for t in range(horizon):
            assert time[t] == expected
            lengths |= {expected + 1} if done[t] else set()
            expected = 0 if done[t] else expected + 1
        assert memory == expected
    assert len(lengths) > 1 and 1 < rollout.done.any(0).sum() < horizon


def test_a_policy_learns_from_an_auxiliary_reward_alone():
    def apply(params, rollout):
        bonus = (rollout.action == 1) * params  # action 1 is interesting
        metrics = {"bonus": (bonus.sum(), jnp.float32(bonus.size))}
        return bonus, jnp.square(params - 2) * jnp.ones(bonus.shape), metrics

    auxiliary = Auxiliary(lambda rng, observation: jnp.ones(()), apply)
    weights = PolicyLoss(reward=0.0, entropy=0.0)
    objective = agent(2, weights, rate=0.5, auxiliary=auxiliary)
    state, data = objective.init(jax.random.key(0)), seed_batches(31, seed=0)
    step = jax.jit(objective.step)
    for i in range(60):
        state, metrics = step(state, data[i], jax.random.key(i))
    np.testing.assert_allclose(state.params["auxiliary"], 2, atol=1e-5)
    total, count = metrics["bonus"]
    assert total / count > 1.8


def test_the_devices_of_pmap_run_the_environments_of_a_single_device():
    devices = jax.local_device_count()
    batch = seed_batches(3 * devices, seed=0)[0]
    weights = PolicyLoss(epochs=2)
    whole, _ = jax.jit(agent(2, weights).step)(
        state := agent(2, weights).init(jax.random.key(0)), batch, jax.random.key(1)
    )
    parts = {"seed": batch["seed"].reshape(devices, 3, 2)}
    split = agent(2, weights).step
    mapped = jax.pmap(split, "data", in_axes=(None, 0, None), out_axes=None)
    new, _ = mapped(state, parts, jax.random.key(1))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        new.params,
        whole.params,
    )
