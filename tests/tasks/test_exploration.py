"""Environments and task of exploration."""

import dataclasses
import importlib.util
import subprocess
import sys

import jax
import jax.numpy as jnp
import jobs
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from states import task_of

from base.errors import UserError
from configs.icm_rooms import get_config
from models.curiosity import CuriousAgent, curiosity_loss, forward_loss, inverse_loss
from tasks.common import policy
from tasks.exploration import environments
from tasks.exploration.doom import inside
from tasks.exploration.environments import VIEW, Rooms, Television, distances
from tasks.exploration.task import cells_visited, probe, visits_of
from training.checkpoints import Checkpoints

PRESS, T = 4, 103
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)]


@pytest.fixture(scope="module")
def step(task):
    return jax.jit(task.objective.step)


def run(environment, actions, seed=0):
    """States, observations, rewards and ends of an episode, from the first state on."""

    @jax.jit
    def episode(rng):
        first, rng = environment.reset(rng), jax.random.split(rng, len(actions))

        def step(state, inputs):
            state, *rest = environment.step(state, *inputs)
            return state, (state, *rest)

        _, rest = jax.lax.scan(step, first[0], (jnp.asarray(actions), rng))
        return first, rest

    (state, observation), (states, observations, reward, done) = episode(
        jax.random.key(seed)
    )
    join = lambda a, b: np.concatenate([np.asarray(a)[None], b])  # noqa: E731
    states = jax.tree.map(join, state, states)
    return states, jax.tree.map(join, observation, observations), reward, done


def random_actions(seed=0):
    return np.random.default_rng(seed).integers(0, 5, T)


@pytest.mark.parametrize("number", [0, 1, 5])
def test_doors_connect_the_rooms_as_a_tree(number):
    rooms = Rooms(number, rooms=3)
    wall, door, goal = rooms._map
    assert wall.shape == rooms.grid == (19, 19)
    assert door.sum() == 3 * 3 - 1 and not (wall & door).any()
    assert wall[[0, -1]].all() and wall[:, [0, -1]].all()
    distance = distances(wall, (3, 3))
    assert ((distance >= 0) == ~wall).all()  # every cell can be reached
    assert distance[goal] == distance.max() and not door[goal]
    again, other = Rooms(number), Rooms(number + 1)
    np.testing.assert_array_equal(again._planes, rooms._planes)
    assert not np.array_equal(other._planes, rooms._planes)


def test_distances_are_those_of_repeated_steps():
    wall, _, _ = Rooms(3, rooms=2)._map
    distance, reached = distances(wall, (3, 3)), np.zeros_like(wall)
    reached[3, 3] = True
    for number in range(distance.max() + 1):
        np.testing.assert_array_equal(reached, (0 <= distance) & (distance <= number))
        spread = [np.roll(reached, step, (0, 1)) for step in MOVES]
        reached = np.any(spread, 0) & ~wall


def test_an_episode_equals_a_simulation():
    rooms, actions = Rooms(0, rooms=2, horizon=97), random_actions()
    states, views, rewards, done = run(rooms, actions)
    wall, door, goal = rooms._map
    position, opened = tuple(states.position[0]), np.zeros_like(wall)
    assert 1 <= min(position) and max(position) <= 5
    blocked = 0
    for t, action in enumerate(actions):
        cell = tuple(np.add(position, MOVES[action]))
        if door[cell] and not opened[cell]:
            opened[cell] = True  # and the agent stays
        elif not wall[cell]:
            position = cell
        blocked += wall[cell]
        assert tuple(states.position[t + 1]) == position
        np.testing.assert_array_equal(states.opened[t + 1], opened)
        assert bool(rewards[t]) == (position == goal)
        assert bool(done[t]) == (position == goal or t + 1 >= 97)
        planes = np.pad(np.stack([wall, door & ~opened], -1), [(3, 3), (3, 3), (0, 0)])
        i, j = position
        around = planes[i : i + VIEW, j : j + VIEW]
        np.testing.assert_array_equal(views[t + 1][..., :2] > 0, around)
    assert blocked > 5 and opened.any()


def route(environment):
    """The shortest way to the goal, from the start of the seed 0."""
    wall, door, goal = environment.inner._map
    states, *_ = run(environment, [PRESS])
    cell = tuple(int(x) for x in states.inner.position[0])
    distance, actions = distances(wall, goal), []
    while cell != goal:
        steps = [tuple(np.add(cell, move)) for move in MOVES[:4]]
        action = next(
            a for a, c in enumerate(steps) if distance[c] == distance[cell] - 1
        )
        cell = steps[action]
        actions += [action] * (1 + door[cell])  # once more, to open it
    return np.array(actions)


def test_the_seed_alone_decides_the_start():
    rooms = Rooms()
    reset = jax.jit(jax.vmap(lambda seed: rooms.reset(jax.random.key(seed))))
    (first, views), (again, _) = reset(jnp.arange(397)), reset(jnp.arange(397))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert len(np.unique(first.position, axis=0)) == 25  # all cells of the first room
    assert not np.asarray(first.opened).any() and views.shape == (397, VIEW, VIEW, 3)


@pytest.mark.parametrize("kind", environments.TELEVISIONS)
def test_a_television_shows_noise_and_changes_nothing_else(kind):
    inner, rows = Rooms(0, rooms=2), 2
    environment = Television(inner, kind, rows)
    actions = route(environment)
    actions = np.insert(actions, range(0, len(actions), 3), PRESS)
    count = len(actions) + 1
    states, observation, reward, done = run(environment, actions)
    image, position = observation["image"], observation["position"]
    assert image.shape == (count, VIEW + rows, VIEW, 3)
    np.testing.assert_array_equal(position, states.inner.position)
    assert reward[-1] == done[-1] == 1 and not reward[:-1].any()
    screen = image[:, VIEW:].reshape(count, -1)
    changes = (screen[1:] != screen[:-1]).any(1)
    inside = (position < 6).all(1)
    assert 0 < inside.sum() < count
    if kind == "none":
        assert not screen.any()
    elif kind == "remote":
        np.testing.assert_array_equal(changes, actions == PRESS)
    elif kind == "room":
        np.testing.assert_array_equal(screen.any(1), inside)
        assert changes[inside[1:]].all()
    else:
        assert changes.all() and 0 < screen.mean() < 1
        other = run(environment, (actions + 1) % 5)[1]["image"]
        np.testing.assert_array_equal(other[:, VIEW:], image[:, VIEW:])


def test_unknown_environments_are_refused():
    for name in ("cave", "cave-2", "rooms-", "rooms-x", "rooms-" + 5000 * "9"):
        with pytest.raises(UserError, match="^'(cave|rooms-).* must be rooms, rooms-N"):
            environments.make(name, "none", 5, 3, 200)
    for name, package in (("MiniGrid-FourRooms", "xminigrid"), ("doom", "vizdoom")):
        if importlib.util.find_spec(package) is None:
            with pytest.raises(ModuleNotFoundError, match=package):
                environments.make(name, "none", 5, 3, 200)
    with pytest.raises(UserError, match="^doom has no television"):
        environments.make("doom", "noise", 5, 3, 200)


def test_cells_inside_of_walls():
    square = [[160, 64], [224, 64], [224, 128], [160, 128]]  # two cells by two
    walls = [[a, b] for a, b in zip(square, square[1:] + square[:1], strict=True)]
    expected = np.zeros((5, 6), bool)
    expected[1:3, 1:3] = True
    np.testing.assert_array_equal(inside(np.array(walls), (5, 6)), expected)


def test_a_game_of_vizdoom_is_an_environment():
    pytest.importorskip("vizdoom")
    with pytest.raises(
        UserError, match="^'doom-hard' must be rooms, .*or one of doom, "
    ):
        environments.make("doom-hard", "none", 5, 3, 200)
    environment = environments.make("doom-very-sparse", "none", 5, 3, 200)
    actions = np.random.default_rng(0).integers(4, size=40)
    (_, observation, reward, done), again = (run(environment, actions) for _ in "ab")
    jax.tree.map(np.testing.assert_array_equal, observation, again[1])
    image, position = observation["image"], observation["position"]
    assert image.shape == (41, 42, 42, 4) and not image[0].any()
    np.testing.assert_array_equal(image[2:, ..., :3], image[1:-1, ..., 1:])
    np.testing.assert_allclose(reward, -4e-4, rtol=1e-5)
    assert not done.any()
    free = np.asarray(environment.free(None))
    assert free[tuple(position[1:].T)].all() and (position[1:, 0] > 20).all()

    states, first = jax.vmap(environment.reset)(jax.random.split(jax.random.key(0), 3))
    step = jax.jit(jax.vmap(environment.step, (0, 0, None)))
    _, views, _, _ = step(states, jnp.array([1, 2, 2]), jax.random.key(0))
    assert not first["image"].any() and views["image"].shape == first["image"].shape
    _, _, reward, done = run(environment, np.zeros(environment.horizon, int))
    assert done[-1] and not done[:-1].any() and (reward < 0).all()


@pytest.mark.slow
def test_a_policy_is_trained_in_games_of_vizdoom(tmp_path):
    pytest.importorskip("vizdoom")
    config = get_config("smoke")
    config.data.update(environment="doom", television="none", batch_size=2)
    task = task_of(config, tmp_path)
    state, step = task.objective.init(jax.random.key(0)), jax.jit(task.objective.step)
    for number in (1, 2):
        state, metrics = step(state, task.train_data()[number], jax.random.key(0))
        running = state.extra["running"].state
        np.testing.assert_array_equal(running.time, 5 * number)
        assert state.extra["visits"].sum() == 10 * number
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics))


def test_a_grid_of_xminigrid_is_an_environment():
    pytest.importorskip("xminigrid")
    with pytest.raises(UserError, match="^'MiniGrid-No' must be one of MiniGrid-"):
        environments.make("MiniGrid-No", "none", 5, 3, 200)
    environment = environments.make("MiniGrid-FourRooms", "noise", 5, 3, 200)
    states, observation, _, done = run(environment, [0] * environment.horizon)
    assert observation["image"].shape[1:] == (VIEW + 5, VIEW, 3)
    assert done[-1] and not done[0]
    free = jax.vmap(environment.free)(states)
    assert all(np.asarray(free)[(np.arange(len(free)), *observation["position"].T)])
    assert 0.5 < free.mean() < 0.9


def test_all_grids_of_xminigrid_have_the_rules_that_steps_take_for_granted():
    xminigrid = pytest.importorskip("xminigrid")
    names = [x for x in xminigrid.registered_environments() if "XLand" not in x]
    for name in names:
        grid = environments.MiniGrid(name)
        rules = jax.jit(lambda rng, grid=grid: grid.reset(rng)[0].state.rule_encoding)
        np.testing.assert_array_equal(rules(jax.random.key(0)), grid._rules)
    actions = np.random.default_rng(0).integers(0, 6, T)
    grid = environments.MiniGrid("MiniGrid-UnlockPickUp")
    states, *_ = run(grid, actions)
    step = jax.jit(lambda *x: grid._inner.step(grid._params, *x))
    for t, action in enumerate(actions):
        before, after = (jax.tree.map(lambda x, i=i: x[i], states) for i in (t, t + 1))
        expected = step(before, action)
        jax.tree.map(np.testing.assert_array_equal, after, expected)


def test_the_visits_of_an_update_are_counted(task, state, step):
    data = task.train_data()
    update = jax.jit(task.objective.update)
    expected = np.zeros((4, *task.environment.grid), int)
    for number, part in ((0, 0), (2, 1), (5, 3)):  # of six steps, in four parts
        state = dataclasses.replace(state, step=jnp.asarray(number))
        running = dataclasses.replace(state, extra=state.extra["running"])
        _, _, rollout = update(running, data[number], jax.random.key(0))
        ends = np.asarray(rollout.following["position"]).reshape(-1, 2)
        np.add.at(expected[part], tuple(ends.T), 1)
        state, metrics = step(state, data[number], jax.random.key(0))
        np.testing.assert_array_equal(state.extra["visits"], expected)
        assert "visits" not in metrics
    assert not expected[:, Rooms(rooms=2)._map[0]].any()
    position = jnp.asarray([[[1, 2], [1, 2]], [[3, 1], [1, 2]]])
    expected = np.zeros((5, 7))
    expected[1, 2], expected[3, 1] = 3, 1
    np.testing.assert_array_equal(visits_of(position, (5, 7)), expected)


def test_the_advantage_is_that_of_the_sum_of_both_rewards(task, state, monkeypatch):
    # With these advantages, the error of the values is the square of the reward.
    monkeypatch.setattr(policy, "advantages", lambda reward, *_, **__: reward)
    objective, batch = task.objective, task.train_data()[0]
    step = jax.jit(lambda *inputs: objective.step(*inputs))  # traced anew
    _, metrics = step(state, batch, jax.random.key(0))

    @jax.jit
    def total(state, seed):
        rollout, _ = objective.rollout(state.params, seed, state.extra["running"])
        reward, _, _ = task.curiosity(state.params["auxiliary"], rollout)
        return reward, reward + rollout.reward

    bonus, both = total(state, batch["seed"])
    assert (bonus > 0).all()
    error, count = metrics["value_error"]
    np.testing.assert_allclose(error, jnp.square(both).sum() / 2, rtol=1e-4)
    np.testing.assert_allclose(metrics["intrinsic"][0], bonus.sum(), rtol=1e-5)


def test_policy_and_curiosity_have_separate_gradients(task, state):
    objective, batch = task.objective, task.train_data()[0]

    @jax.jit
    def gradients(params, seed):
        running = state.extra["running"]
        rollout, _ = objective.rollout(params, seed, running)

        def loss(params, scale):
            reward = scale * task.curiosity(params["auxiliary"], rollout)[0]
            parts = running.memory, rollout, reward, reward
            return objective.loss(params, parts, None)[0]

        def curiosity(params):
            return task.curiosity(params["auxiliary"], rollout)[1].sum()

        slopes = [jax.grad(loss)(params, scale) for scale in (1.0, 0.0)]
        return *slopes, jax.grad(curiosity)(params)

    with_bonus, without, alone = gradients(state.params, batch["seed"])
    for other in (without, alone):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            with_bonus["auxiliary"],
            other["auxiliary"],
        )
    first, second, zero = (
        np.concatenate([x.ravel() for x in jax.tree.leaves(slopes["policy"])])
        for slopes in (with_bonus, without, alone)
    )
    assert not np.allclose(first, second) and not zero.any()


def test_a_run_resumes_bit_for_bit(task, state, step, tmp_path):
    data, rng = task.train_data(), jax.random.key(0)
    with Checkpoints(tmp_path, 1) as checkpoints:
        for number in range(4):
            if number == 2:
                checkpoints.save(2, state, None, planned=True)
                checkpoints.wait()
                like = jax.tree.map(
                    lambda x: jax.ShapeDtypeStruct(
                        x.shape, x.dtype, sharding=x.sharding
                    ),
                    state,
                )
                resumed = checkpoints.restore(2, like)
            state, _ = step(state, data[number], rng)
    for number in (2, 3):
        resumed, _ = step(resumed, data[number], rng)
    jax.tree.map(np.testing.assert_array_equal, state, resumed)


@pytest.mark.slow
def test_eight_devices_explore_as_one(request):
    if jax.device_count() < 8:
        command = sys.executable, "-m", "pytest", "-q", "-m", "", "-n", "0"
        process = subprocess.run(
            [*command, f"{__file__}::{request.node.name}"],
            env=jobs.environment(8),
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return
    state, task = request.getfixturevalue("state"), request.getfixturevalue("task")
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*x)) for x in (["data"], []))
    batch, rng = task.train_data()[0], jax.random.key(0)
    step = request.getfixturevalue("step")
    alone, _ = step(state, batch, rng)
    spread = jax.device_put(state, whole), jax.device_put(batch, rows)
    together, _ = step(*spread, rng)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        (alone.params, alone.extra),
        (together.params, together.extra),
    )


def test_a_line_is_an_environment_and_a_seed(task):
    example = task.parse("rooms-3\t7", None)
    assert example.environment == "rooms-3" and list(example.seed) == [0, 7]
    for line in (
        "rooms",
        "rooms 7",
        "rooms\tx",
        f"rooms\t{2**32}",
        "rooms\t" + "9" * 5000,
    ):
        with pytest.raises(UserError, match="must be an environment, a tab and a seed"):
            task.parse(line, None)
    with pytest.raises(UserError, match="^'cave' must be rooms"):
        task.parse("cave\t7", None)


def test_the_way_of_an_agent_is_on_the_map_of_its_rooms(task):
    rooms, name = Rooms(3, rooms=2), "rooms-3"
    wall, door, goal = rooms._map
    answer = {
        "action": np.array([3, 1, 0, 3]),  # then against a wall; then after the end
        "reward": np.array([0.0, 0.0, 1.0, 0.0]),
        "length": 3,
        "position": np.array([[1, 1], [1, 2], [2, 2], [2, 2]]),
        "last": np.array([[1, 2], [2, 2], [2, 2], [2, 3]]),
        "free": ~wall,
    }
    example = task.parse(f"{name}\t7", None)
    (way,) = task.show(example, answer).attention
    assert way.places.is_path and way.queries == ["start", "right", "down", "up"]
    cells = way.places.boxes[way.places.chosen] * np.tile(rooms.grid, 2)
    expected = [(1, 1, 2, 2), (1, 2, 2, 3), (2, 2, 3, 3), (2, 2, 3, 3)]
    np.testing.assert_allclose(cells, expected, atol=1e-9)
    image = way.places.image
    assert image.shape == (*rooms.grid, 3) and image.dtype == np.uint8
    names = np.full(rooms.grid, "free", object)
    names[wall], names[door], names[goal] = "wall", "door", "goal"
    expected = [[environments.COLOURS[x] for x in row] for row in names]
    np.testing.assert_array_equal(image, expected)
    assert len(set(environments.COLOURS.values())) == 4


def test_an_episode_is_scored_up_to_its_end(task):
    # Two steps and the goal; then the episode goes on for nothing.
    position = np.array([[1, 1], [1, 2], [2, 2], [2, 3]])
    free = np.zeros((5, 5), bool)
    free[1:4, 1:4] = True
    answer = {
        "action": np.array([3, 1, 1, 3]),
        "reward": np.array([0.0, 1.0, 1.0, 0.0]),
        "length": 2,
        "position": position,
        "last": np.concatenate([position[1:], [[3, 3]]]),
        "free": free,
    }
    assert task.row(1, None, answer) == ("right, down", 2, "1", "33.3")
    assert {*zip(*np.nonzero(cells_visited(answer)), strict=True)} == {
        (1, 1),
        (1, 2),
        (2, 2),
    }


def test_a_probe_reads_what_is_linear_and_no_noise(draw):
    features, noise = draw(6, 53, 7), draw(6, 53, 2)
    target = features[..., :2] * 3 + 5
    assert 99 < probe(features, target) <= 100
    assert probe(features, noise) < 20


@pytest.fixture(scope="module")
def transitions():
    """Transitions of random actions; the same with another screen afterwards."""
    environment = Television(Rooms(0, rooms=2), "noise", rows=2)
    parts = []
    for seed in range(8):
        actions = random_actions(seed)
        _, observation, *_ = run(environment, actions, seed)
        image = observation["image"]
        parts.append((image[:-1], image[1:], actions))
    image, following, action = (
        jnp.asarray(np.concatenate(x)) for x in zip(*parts, strict=True)
    )
    other = np.array(following)
    other[:, VIEW:] = np.random.default_rng(0).random(other[:, VIEW:].shape)
    return image, following, action, other


@pytest.mark.parametrize("features", ["icm", "pixels"])
def test_trained_features_and_not_pixels_leave_the_television_out(
    transitions, features
):
    image, following, action, other = transitions
    model = CuriousAgent(5, features, layers=1, filters=8, hidden=32)
    params = model.init(
        jax.random.key(0), image[:1], following[:1], action[:1], method="transition"
    )
    optimizer = optax.adam(3e-3)

    def predict(params, following, rows=slice(None)):
        parts = image[rows], following[rows], action[rows]
        return model.apply(params, *parts, method="transition")

    def loss(params, rows):
        features, predicted, logits = predict(params, jnp.asarray(following), rows)
        inverse = 0.0 if logits is None else inverse_loss(logits, action[rows])
        forward = forward_loss(predicted, features)
        return curiosity_loss(inverse, forward, 0.2).mean()

    @jax.jit
    def train(params):
        def update(carry, rng):
            params, moments = carry
            rows = jax.random.randint(rng, (128,), 0, len(action))
            slopes = jax.grad(loss)(params, rows)
            updates, moments = optimizer.update(slopes, moments)
            return (optax.apply_updates(params, updates), moments), None

        rngs = jax.random.split(jax.random.key(1), 600)
        carry = params, optimizer.init(params)
        return jax.lax.scan(update, carry, rngs)[0][0]

    @jax.jit
    def share(params):
        """Change of the features with the screen, relative to that with all else."""
        phi = [predict(params, jnp.asarray(x)).features for x in (following, other)]
        shuffled = jax.random.permutation(jax.random.key(2), phi[0])
        return forward_loss(*phi).mean() / forward_loss(phi[0], shuffled).mean()

    before, after = float(share(params)), float(share(train(params)))
    if features == "icm":
        assert 0.3 < before and after < 0.6 * before
    else:
        assert after == before > 0.3
