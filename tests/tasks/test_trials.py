"""Bandits, MDPs, the strategies for them, and the task of trials."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from base.errors import UserError
from configs import snail_bandits, snail_mdp
from tasks.common.policy import seeds, step_keys
from tasks.trials import bandits as bandit_module
from tasks.trials.bandits import bandits, gittins_indices, thompson, ucb1
from tasks.trials.mdps import LENGTH, MDP, STATES, mdps, value_iteration
from tasks.trials.mdps import strategies as mdp_strategies
from tasks.trials.trials import play, trial
from training.task import NoOptions, create

SEEDS = seeds(np.random.default_rng(0), 997)


def test_gittins_indices_of_one_pull_are_the_means():
    indices = gittins_indices(5)
    for s, f in itertools.product(range(5), repeat=2):
        if s + f < 5:
            np.testing.assert_allclose(indices[0, s, f], (s + 1) / (s + f + 2))
    # Two pulls of a new arm: 2 c = 1/2 + 1/2 2/3 + 1/2 c, so c = 5/9.
    np.testing.assert_allclose(indices[1, 0, 0], 5 / 9, atol=1e-6)
    # Of an arm with one success: 2 c = 2/3 + 2/3 3/4 + 1/3 c, so c = 7/10.
    np.testing.assert_allclose(indices[1, 1, 0], 7 / 10, atol=1e-6)


def test_long_trials_have_no_gittins_indices(monkeypatch):
    monkeypatch.setattr(bandit_module, "_MAX_GITTINS", 4)
    named = [bandit_module.strategies(2, pulls) for pulls in (4, 5)]
    assert ["gittins" in names for names in named] == [True, False]


def test_at_its_gittins_index_a_known_arm_is_as_good():
    def value(n, s, f, c, *, may_stop=True):  # of n pulls that remain
        if n == 0:
            return 0.0
        m = (s + 1) / (s + f + 2)
        go_on = m * (1 + value(n - 1, s + 1, f, c))
        go_on += (1 - m) * value(n - 1, s, f + 1, c)
        return max(n * c, go_on) if may_stop else go_on

    horizon = 7
    indices = gittins_indices(horizon)
    for n, s, f in [(7, 0, 0), (4, 1, 2), (5, 0, 2), (3, 3, 1)]:
        c = indices[n - 1, s, f]
        np.testing.assert_allclose(value(n, s, f, c, may_stop=False), n * c, atol=1e-4)


def test_strategies_are_better_in_their_order():
    reward = {
        name: np.asarray(play(bandits(3), 11, strategy, SEEDS)).sum(1).mean()
        for name, strategy in bandit_module.strategies(3, 11).items()
    }
    assert abs(reward["random"] - 11 / 2) < 4 * np.sqrt(11 / 3 / len(SEEDS)) * 2
    assert reward["gittins"] > reward["thompson"] + 0.2 > reward["random"] + 0.7


def test_each_arm_has_a_first_pull_and_then_the_highest_bound():
    s, f = jnp.array([1.0, 0, 3]), jnp.array([1.0, 0, 2])
    assert ucb1(s, f, 7, None).argmax() == 1
    s, f = jnp.array([1.0, 2, 3]), jnp.array([1.0, 4, 2])
    expected = s / (s + f) + np.sqrt(2 * np.log(13) / (s + f))
    np.testing.assert_allclose(ucb1(s, f, 13, None), expected, rtol=1e-6)


def test_thompson_sampling_draws_from_the_posterior():
    keys = jax.random.split(jax.random.key(0), 2003)
    s, f = jnp.array([0.0, 3]), jnp.array([0.0, 1])
    draws = jax.vmap(lambda rng: thompson(s, f, 4, rng))(keys)
    np.testing.assert_allclose(draws.mean(0), (1 + s) / (2 + s + f), atol=0.03)


def test_an_arm_pays_with_its_chance():
    family, chances = bandits(3), jnp.array([0.0, 1.0, 0.3])
    keys = jax.random.split(jax.random.key(0), 3001)
    for arm, chance in enumerate(chances):
        pull = jax.vmap(lambda rng, arm=arm: family.step(chances, 0, arm, rng)[1])
        np.testing.assert_allclose(pull(keys).mean(), chance, atol=0.03)


def test_an_mdp_has_distributions_over_states_and_noisy_rewards():
    states = 7
    family = mdps(3, states)
    mdp = jax.vmap(family.sample)(jax.random.split(jax.random.key(0), 101))
    assert mdp.chances.shape == (101, states, 3, states)
    assert family.observe(jnp.zeros((), int)).shape == (states,)
    np.testing.assert_allclose(mdp.chances.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose([mdp.mean.mean(), mdp.mean.std()], [1, 1], atol=0.06)
    first = jax.tree.map(lambda x: x[0], mdp)
    keys = jax.random.split(jax.random.key(1), 5003)
    state, reward = jax.vmap(lambda rng: family.step(first, 4, 2, rng))(keys)
    shares = np.bincount(state, minlength=states) / len(keys)
    np.testing.assert_allclose(shares, first.chances[4, 2], atol=0.03)
    np.testing.assert_allclose(reward.mean(), first.mean[4, 2], atol=0.06)
    np.testing.assert_allclose(reward.std(), 1, atol=0.06)


def test_value_iteration_equals_a_search_through_all_futures():
    rng, states, actions, length = np.random.default_rng(0), 3, 2, 4
    mean = rng.normal(size=(states, actions))
    chances = rng.dirichlet(np.ones(states), (states, actions))

    def best(state, steps):
        if steps == 0:
            return 0.0
        return max(q(state, action, steps) for action in range(actions))

    def q(state, action, steps):
        futures = [best(new, steps - 1) for new in range(states)]
        return mean[state, action] + chances[state, action] @ futures

    policy, value = value_iteration(
        MDP(jnp.asarray(mean), jnp.asarray(chances)), length
    )
    np.testing.assert_allclose(
        value, [best(s, length) for s in range(states)], rtol=1e-5
    )
    for h, s in np.ndindex(length, states):
        values = [q(s, a, length - h) for a in range(actions)]
        assert policy[h, s] == np.argmax(values)


def test_value_iteration_gets_its_value_and_posterior_sampling_learns():
    family, episodes, count = mdps(3, 5), 6, 199
    strategies = mdp_strategies(3, 60, 5)
    reward = {
        name: np.asarray(play(family, episodes, strategies[name], SEEDS[:count]))
        for name in ("optimal", "psrl")
    }
    keys = step_keys(SEEDS[:count], episodes * LENGTH)[:, 0]
    value = jax.vmap(lambda rng: value_iteration(family.sample(rng))[1][0])(keys)
    mean = reward["optimal"].sum(1).mean() / episodes
    np.testing.assert_allclose(mean, value.mean(), rtol=0.02)
    psrl = reward["psrl"].reshape(count, episodes, LENGTH).sum(2).mean(0)
    assert psrl[-1] > psrl[0] + 2  # the first episode is a draw from the prior


@pytest.mark.parametrize("family", [bandits(3), mdps(3)], ids=["bandit", "mdp"])
def test_a_trial_is_episodes_of_one_problem_with_the_history_as_input(family):
    episodes = 3
    environment = trial(family, episodes)
    keys = step_keys(SEEDS[:1], episodes * family.length)[0]
    state, observation = environment.reset(keys[0])
    problem = state[0]
    assert not observation[-5:].any()
    jax.tree.map(np.testing.assert_array_equal, problem, family.sample(keys[0]))
    step = jax.jit(environment.step)
    for t in range(episodes * family.length):
        action = t % 3
        state, observation, reward, done = step(state, action, keys[t + 1])
        jax.tree.map(np.testing.assert_array_equal, problem, state[0])
        *history, previous, ends = observation[-5:]
        np.testing.assert_array_equal(history, np.eye(3)[action])
        assert previous == reward and ends == ((t + 1) % family.length == 0)
        assert done == (t + 1 == episodes * family.length)
        inner = 0 if ends else int(state[1])
        width = len(observation) - 5
        np.testing.assert_array_equal(
            observation[:width], np.eye(STATES)[inner][:width]
        )


@pytest.fixture(scope="module", params=[snail_bandits, snail_mdp])
def task(request, tmp_path_factory):
    config = request.param.get_config("smoke")
    return create(config, tmp_path_factory.mktemp("run"), training=True)


def test_a_line_names_a_problem_and_a_seed(task):
    name = task.config.data.problem
    state = jax.jit(task.objective.init)(jax.random.key(0))
    lines = [f"{name}\t7", f"{name}\t8", f"{name}\t7"]
    examples = [task.parse(line, NoOptions()) for line in lines]
    answers = task.answers(state, examples, attention=True)
    first, other, again = map(task.show, examples, answers)
    assert first.text == again.text != other.text
    actions, reward = first.text.split("\t")
    horizon = task.config.data.episodes * task.family.length
    assert len(actions.split()) == horizon
    np.testing.assert_allclose(float(reward), answers[0]["reward"].sum(), rtol=1e-3)
    (weights,) = [each.weights for each in first.attention]
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert weights.shape == (1, horizon, horizon) and not np.triu(weights[0], 1).any()
    (each,) = first.attention
    action, reward = answers[0]["action"][0], answers[0]["reward"][0]
    if name == "bandit":
        assert each.queries[0] == f"{action}: {reward:.3g}"
        assert each.note.startswith("Label of a step: the arm and, after the colon")
    else:
        assert each.queries[0] == f"s0 {action}: {reward:.3g}"
        assert each.note.startswith("Label of a step: the state, the action and, after")
    for line in ("maze\t7", name, f"{name}\tx", f"{name}\t{'9' * 5000}"):
        with pytest.raises(UserError, match=f"must be {name}, a tab and a seed"):
            task.parse(line, NoOptions())


def test_arms_pay_as_in_gymnax():
    gymnax = pytest.importorskip("gymnax")
    environment, params = gymnax.make("BernoulliBandit-misc")
    keys = jax.random.split(jax.random.key(0), 41)
    _, state = environment.reset_env(keys[-1], params)
    rewards = []
    for t, rng in enumerate(keys):
        _, state, reward, *_ = environment.step_env(rng, state, t % 2, params)
        _, expected = bandits(2).step(state.reward_probs, 0, t % 2, rng)
        assert reward == expected
        rewards.append(int(reward))
    assert set(rewards) == {0, 1}
