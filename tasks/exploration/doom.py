"""MyWayHome of VizDoom: nine rooms and corridors in 3D, in first-person view.

The environment of Pathak et al. (2017), section 4.1. A vest waits in the farthest room;
an episode ends there, with a reward of 1, or after 2,100 tics. Each tic costs 0.0001.
An action lasts for four tics; an observation is the last four images, grey, as in the
authors' code. The agent starts anywhere (`doom`), in the western room
(`doom-sparse`) or in the southern corridor (`doom-very-sparse`).

The package vizdoom provides the game and the map, and runs each game in a separate
process. A step of B environments is one callback from the jitted rollout to the host;
row b plays game b. A game starts with the first action of its episode: before it, the
observation is black, and the position is in the margin. A game is not part of a
checkpoint, so a resumed run restarts its episodes and differs from an uninterrupted
one.

Axes: B environments; S rows and columns of an image; F images of an observation; I, J
rows and columns of the map.
"""

import atexit
import functools
import itertools
import shlex
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from base.errors import UserError

_SIZE, _FRAMES, _TICS = 42, 4, 4  # S, F; of an action
_CELL = 32  # side of a cell of the map, in units of the game
_WEST, _EAST, _SOUTH, _NORTH = 160, 1120, -704, 128  # of the map
# Limits of the start in the east and in the north, by name of an environment.
STARTS = {
    "doom": (_EAST, _NORTH),
    "doom-sparse": (320, _NORTH),
    "doom-very-sparse": (_EAST, -544),
}
_SEEDS = 8  # number of seeds of a fixed start


class DoomState(NamedTuple):
    """State of an episode."""

    seed: jax.Array  # uint32, of the game
    time: jax.Array  # int32, actions so far
    position: jax.Array  # int32 [2]
    frames: jax.Array  # uint8 [S, S, F]


class Doom:
    """MyWayHome; see the module's docstring."""

    actions = ("wait", "forward", "left", "right")  # left and right turn
    grid = (_NORTH - _SOUTH) // _CELL + 2, (_EAST - _WEST) // _CELL + 2  # with a margin
    horizon = 2100 // _TICS

    def __init__(self, name: str):
        """Creates one of `STARTS`; a game starts with its first step.

        Raises:
            UserError: in a run of several processes.
        """
        if jax.process_count() > 1:
            raise UserError(f"{name} needs a run of a single process")
        import vizdoom  # noqa: F401  a missing package is an error now

        self._name = name
        self._games: dict[int, list[_Game]] = {}  # by B
        self._threads = ThreadPoolExecutor()

    def reset(self, rng: jax.Array) -> tuple[DoomState, dict[str, jax.Array]]:
        """Returns an episode whose game has not started, and a black observation."""
        zero = jnp.zeros((), jnp.int32)
        frames = jnp.zeros((_SIZE, _SIZE, _FRAMES), jnp.uint8)
        state = DoomState(jax.random.bits(rng), zero, jnp.zeros(2, jnp.int32), frames)
        return state, self._observe(state)

    def step(self, state: DoomState, action: jax.Array, rng: jax.Array) -> Any:
        """Takes an action; `rng` has no effect: the game has its own seed."""
        image, position, reward, done = self._act(state.seed, state.time, action)
        frames = jnp.concatenate([state.frames[..., 1:], image[..., None]], -1)
        state = DoomState(state.seed, state.time + 1, position, frames)
        return state, self._observe(state), reward, done

    @staticmethod
    def _observe(state: DoomState) -> dict[str, jax.Array]:
        image = state.frames.astype(jnp.float32) / 255
        return {"image": image, "position": state.position}

    def free(self, state: DoomState) -> jax.Array:
        """Returns the cells whose centre is inside a room, bool [I, J]."""
        return jnp.asarray(_map())

    @functools.cached_property
    def _act(self) -> Any:
        """Step of one environment; `vmap` makes it one callback for a batch."""

        @jax.custom_batching.custom_vmap
        def act(*inputs: jax.Array) -> Any:
            return jax.tree.map(lambda x: x[0], call(*(x[None] for x in inputs)))

        @act.def_vmap
        def _(size: int, batched: Any, *inputs: jax.Array) -> Any:
            rows = [
                x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
                for x, is_batched in zip(inputs, batched, strict=True)
            ]
            return call(*rows), (True,) * 4

        def call(*inputs: jax.Array) -> Any:
            size = len(inputs[0])
            shapes = (
                jax.ShapeDtypeStruct((size, _SIZE, _SIZE), jnp.uint8),
                jax.ShapeDtypeStruct((size, 2), jnp.int32),
                jax.ShapeDtypeStruct((size,), jnp.float32),
                jax.ShapeDtypeStruct((size,), jnp.bool_),
            )
            return io_callback(self._play, shapes, *inputs)

        return act

    def _play(self, *inputs: Any) -> tuple[np.ndarray, ...]:
        """Takes an action in each of B games."""
        seed, time, action = map(np.asarray, inputs)
        size = len(seed)
        if size not in self._games:
            self._games[size] = [_Game() for _ in range(size)]
        if (seeds := _seeds(self._name)).size:
            seed = seeds[seed % len(seeds)]
        plays = self._threads.map(_Game.play, self._games[size], seed, time, action)
        image, position, reward, done = zip(*plays, strict=True)
        return (
            np.stack(image),
            np.array([_cell(x) for x in position], np.int32),
            np.array(reward, np.float32),
            np.array(done),
        )


@functools.cache
def _seeds(name: str) -> np.ndarray:
    """Seeds of episodes that start within the limits; none for a start anywhere."""
    if name == "doom":
        return np.zeros(0, np.uint32)
    game, limits = _Game(), np.array(STARTS[name])
    starts = (seed for seed in itertools.count(1) if game.starts(seed, limits))
    seeds = np.fromiter(itertools.islice(starts, _SEEDS), np.uint32)
    game.close()
    return seeds


@functools.cache
def _map() -> np.ndarray:
    """The cells inside a room, bool [I, J]."""
    game = _Game(sectors=True)
    game.begin(0)
    sectors = game.inner.get_state().sectors
    lines = [
        tuple(sorted([(line.x1, line.y1), (line.x2, line.y2)]))
        for sector in sectors
        for line in sector.lines
    ]
    game.close()
    walls = np.array([x for x in lines if lines.count(x) == 1])  # of one room
    return inside(walls, Doom.grid)


def inside(walls: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Returns the cells inside: a ray to the east crosses an odd number of walls.

    Args:
        walls: [walls, 2, 2]; the points of a wall, x and y.
        grid: I and J.

    Returns:
        bool [I, J].
    """
    rows, columns = np.indices(grid)
    x = (_WEST + (columns - 0.5) * _CELL)[..., None]
    y = (_NORTH - (rows - 0.5) * _CELL)[..., None]
    (x1, y1), (x2, y2) = np.moveaxis(walls, 0, -1)
    spans = (y1 > y) != (y2 > y)
    with np.errstate(divide="ignore", invalid="ignore"):
        crosses = spans & (x < x1 + (y - y1) * (x2 - x1) / (y2 - y1))
    return crosses.sum(-1) % 2 == 1


def _cell(position: np.ndarray) -> tuple[int, int]:
    """Row and column of a position x, y."""
    x, y = position
    return 1 + int((_NORTH - y) // _CELL), 1 + int((x - _WEST) // _CELL)


class _Game:
    """A game, in a process of its own."""

    def __init__(self, *, sectors: bool = False):
        import vizdoom

        self.seed, self.time = -1, 0
        self.folder = tempfile.TemporaryDirectory()  # for files that the game writes
        self.inner = vizdoom.DoomGame()
        self.inner.load_config(str(Path(vizdoom.scenarios_path) / "my_way_home.cfg"))
        self.inner.set_doom_config_path(str(Path(self.folder.name) / "doom.ini"))
        self.inner.set_window_visible(False)
        self.inner.set_screen_format(vizdoom.ScreenFormat.GRAY8)
        self.inner.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
        button, variable = vizdoom.Button, vizdoom.GameVariable
        self.inner.set_available_buttons(
            [button.MOVE_FORWARD, button.TURN_LEFT, button.TURN_RIGHT]
        )
        self.inner.set_available_game_variables(
            [variable.POSITION_X, variable.POSITION_Y]
        )
        self.inner.set_sectors_info_enabled(sectors)
        self.inner.set_vizdoom_path(str(self._wrapper(vizdoom)))
        self.inner.init()
        atexit.register(self.close)  # before the folder is removed

    def _wrapper(self, vizdoom: Any) -> Path:
        """Writes a script that runs the game in its folder.

        The game ignores Ctrl-C, so that the training can save its state before it
        ends.
        """
        game = Path(vizdoom.__file__).parent / "vizdoom"
        folder, path = shlex.quote(self.folder.name), shlex.quote(str(game))
        script = Path(self.folder.name) / "game.sh"
        script.write_text(
            f"#!/bin/sh\ntrap '' INT\ncd {folder} && exec {path} \"$@\"\n"
        )
        script.chmod(0o700)
        return script

    def begin(self, seed: int) -> None:
        """Begins an episode."""
        self.inner.set_seed(seed)
        self.inner.new_episode()
        self.seed, self.time = seed, 0
        self._look()

    def starts(self, seed: int, limits: np.ndarray) -> bool:
        """Returns whether an episode starts west and south of the limits."""
        self.begin(seed)
        return bool((self.position < limits).all())

    def play(self, seed: Any, time: Any, action: Any) -> Any:
        """Takes an action; returns image, position, reward and done."""
        if not time or (self.seed, self.time) != (seed, time):
            self.begin(int(seed))
        reward = 0.0
        if not self.inner.is_episode_finished():
            buttons = [float(action == i) for i in (1, 2, 3)]
            reward = self.inner.make_action(buttons, _TICS)
        self.time = int(time) + 1
        done = self.inner.is_episode_finished()
        if not done:
            self._look()
        return self.image, self.position, reward, done

    def _look(self) -> None:
        """Stores the current image and position."""
        from PIL import Image

        state = self.inner.get_state()
        image = Image.fromarray(state.screen_buffer).resize((_SIZE, _SIZE), Image.BOX)
        self.image, self.position = np.asarray(image), state.game_variables[:2]

    def close(self) -> None:
        """Ends the game."""
        self.inner.close()
        self.folder.cleanup()
