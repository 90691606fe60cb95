"""Environments for exploration: rooms on a grid, with a television, and VizDoom.

Rollouts run inside a jitted step. Environments are pure functions of arrays; only those
of VizDoom call the host. `reset(rng)` returns a state and an observation [., V, C],
which `Television` puts into a dict under "image"; `step(state, action, rng)` returns
the next ones, a reward and whether the episode ends. They have the names of the
`actions`; the `grid`, I and J; the `horizon`, the maximum number of steps of an
episode; and, except for VizDoom, `room`, the rows and columns of the first room, in
which a television of the kind "room" is on.

*   `rooms`, `rooms-1`, `rooms-2`, ...: a tree of rooms with doors between them; the
    number is the seed of the layout. The agent starts in the first room; the reward of
    1 is in the cell that takes the most moves from the centre of this room. A closed
    door opens when the agent walks against it.
*   `MiniGrid-FourRooms` and other names of the package xminigrid, if it is installed.
*   `doom`, `doom-sparse`, `doom-very-sparse`, if vizdoom is installed; see
    `tasks.exploration.doom`. They have no television.

Axes: I, J rows and columns of a grid; V rows and columns of a view; S rows of a screen.
"""

import dataclasses
import functools
from collections import deque
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from base.errors import UserError, one_line, parse_whole
from tasks.exploration.doom import STARTS, Doom

VIEW = 7  # V
CHANNELS = 3  # of an observation
TELEVISIONS = ("none", "noise", "room", "remote")
COLOURS = {  # of cells in an image of rooms
    "free": (240, 240, 240),
    "wall": (90, 90, 90),
    "door": (70, 130, 200),
    "goal": (40, 160, 70),
}
_SIZE = 5  # rows and columns of a room
_MINIGRID = "MiniGrid-"
_MINIGRID_IDS = 13.0  # above the ids of tiles and colours of xminigrid
_STEPS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)], np.int32)

State = Any
Step = tuple[State, jax.Array, jax.Array, jax.Array]


class RoomsState(NamedTuple):
    """State of an episode in `Rooms`."""

    position: jax.Array  # int32 [2]
    opened: jax.Array  # bool [I, J], doors that are open
    time: jax.Array  # int32, steps so far


@dataclasses.dataclass(frozen=True)
class Rooms:
    """Rooms that closed doors connect as a tree.

    The view is centred on the agent and passes through walls. Its channels are walls,
    with a fixed texture by which places differ; closed doors; and the goal.

    Attributes:
        number: number of the layout.
        rooms: rooms per side.
        horizon: steps of an episode that does not reach the goal.
    """

    number: int = 0
    rooms: int = 3
    horizon: int = 200

    actions: ClassVar[tuple[str, ...]] = ("up", "down", "left", "right", "press")
    room: ClassVar[tuple[int, int]] = (_SIZE + 1, _SIZE + 1)

    @property
    def grid(self) -> tuple[int, int]:
        """I and J."""
        side = self.rooms * (_SIZE + 1) + 1
        return side, side

    @functools.cached_property
    def _map(self) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
        """Walls and doors, bool [I, J], and the cell of the goal."""
        rng, period = np.random.default_rng(self.number), _SIZE + 1
        index = np.arange(self.grid[0])
        lines = index % period == 0
        wall = lines[:, None] | lines
        door = np.zeros_like(wall)
        rooms = [(i, j) for i in range(self.rooms) for j in range(self.rooms)]
        pairs = [(a, (a[0] + 1, a[1])) for a in rooms if a[0] + 1 < self.rooms]
        pairs += [(a, (a[0], a[1] + 1)) for a in rooms if a[1] + 1 < self.rooms]
        part = {room: n for n, room in enumerate(rooms)}
        for k in rng.permutation(len(pairs)):  # Kruskal (1956)
            a, b = pairs[k]
            if part[a] != part[b]:
                part = {r: part[a] if n == part[b] else n for r, n in part.items()}
                along = 1 + int(rng.integers(_SIZE))
                down = b[0] > a[0]
                at = (period, along) if down else (along, period)
                door[a[0] * period + at[0], a[1] * period + at[1]] = True
        wall &= ~door
        distance = distances(wall, (period // 2, period // 2))
        goal = np.unravel_index(np.argmax(distance), distance.shape)
        return wall, door, (int(goal[0]), int(goal[1]))

    @functools.cached_property
    def _planes(self) -> np.ndarray:
        """Walls with their texture, doors and goal, with a margin: [., ., C]."""
        wall, door, goal = self._map
        planes = np.zeros((*self.grid, CHANNELS), np.float32)
        rng = np.random.default_rng((self.number, 1))
        planes[..., 0] = wall * rng.choice([0.4, 0.7, 1.0], self.grid)
        planes[..., 1] = door
        planes[(*goal, 2)] = 1
        margin = VIEW // 2
        return np.pad(planes, ((margin, margin), (margin, margin), (0, 0)))

    def image(self) -> np.ndarray:
        """Returns the map with all doors closed, uint8 [I, J, 3]; see `COLOURS`."""
        wall, door, goal = self._map
        image = np.full((*self.grid, 3), COLOURS["free"], np.uint8)
        for name, cells in ("wall", wall), ("door", door), ("goal", goal):
            image[cells] = COLOURS[name]
        return image

    def reset(self, rng: jax.Array) -> tuple[RoomsState, jax.Array]:
        """Places the agent in the first room; all doors are closed."""
        position = jax.random.randint(rng, (2,), 1, _SIZE + 1)
        closed = jnp.zeros(self.grid, bool)
        state = RoomsState(position, closed, jnp.zeros((), jnp.int32))
        return state, self._observe(state)

    def step(self, state: RoomsState, action: jax.Array, rng: jax.Array) -> Step:
        """Moves the agent by one cell, unless there is a wall or a closed door."""
        wall, door, goal = map(jnp.asarray, self._map)
        row, column = target = state.position + jnp.asarray(_STEPS)[action]
        closed = door[row, column] & ~state.opened[row, column]
        opened = state.opened.at[row, column].set(state.opened[row, column] | closed)
        enters = ~wall[row, column] & ~closed
        position = jnp.where(enters, target, state.position)
        state = RoomsState(position, opened, state.time + 1)
        reached = (position == goal).all()
        done = reached | (state.time >= self.horizon)
        return state, self._observe(state), reached.astype(jnp.float32), done

    def position(self, state: RoomsState) -> jax.Array:
        """Returns row and column of the agent, int32 [2]."""
        return state.position

    def free(self, state: RoomsState) -> jax.Array:
        """Returns the cells that are not walls, bool [I, J]."""
        return jnp.asarray(~self._map[0])

    def _observe(self, state: RoomsState) -> jax.Array:
        margin = VIEW // 2
        opened = jnp.pad(state.opened, margin)[..., None]
        planes = jnp.asarray(self._planes)
        planes *= 1 - opened * jnp.eye(CHANNELS)[1]  # an open door is not drawn
        start = (*state.position, 0)
        return jax.lax.dynamic_slice(planes, start, (VIEW, VIEW, CHANNELS))


def distances(wall: np.ndarray, start: tuple[int, int]) -> np.ndarray:
    """Returns the number of moves from `start` to each cell, -1 for none: [I, J]."""
    distance = np.full(wall.shape, -1)
    distance[start] = 0
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        for step in _STEPS[:4]:
            other = (cell[0] + int(step[0]), cell[1] + int(step[1]))
            if not wall[other] and distance[other] < 0:
                distance[other] = distance[cell] + 1
                queue.append(other)
    return distance


class MiniGrid:
    """An environment of xminigrid: an agent that turns, and sees what is before it.

    The channels of the view are tiles and colours, as numbers from 0 to 1.
    """

    actions = ("forward", "right", "left", "pick", "put", "toggle")

    def __init__(self, name: str):
        """Creates the environment.

        Raises:
            UserError: if xminigrid has no such environment.
        """
        import xminigrid
        from xminigrid.core.constants import Tiles
        from xminigrid.core.rules import EmptyRule

        names = [x for x in xminigrid.registered_environments() if "XLand" not in x]
        if name not in names:
            raise UserError(f"{name!r} must be one of {', '.join(names)}")
        self._inner, self._params = xminigrid.make(name, view_size=VIEW)
        self._wall, self._rules = Tiles.WALL, EmptyRule().encode()[None]
        self.grid = (self._params.height, self._params.width)
        self.room = (self.grid[0] // 2, self.grid[1] // 2)
        self.horizon = self._params.max_steps

    def reset(self, rng: jax.Array) -> tuple[Any, jax.Array]:
        """Returns the first time step, and its observation."""
        step = self._inner.reset(self._params, rng)
        # A checkpoint cannot have the key, which only xminigrid's own wrappers read.
        step = step.replace(state=step.state.replace(key=jnp.zeros((), jnp.uint32)))
        return step, self._observe(step)

    def step(self, state: Any, action: jax.Array, rng: jax.Array) -> Step:
        """Takes a step; the reward is above 0 at the goal."""
        # No environment of MiniGrid has rules. As a constant, their encoding selects
        # one branch of xminigrid's switch; otherwise, `vmap` runs all twelve.
        inner = state.state.replace(rule_encoding=self._rules)
        step = self._inner.step(self._params, state.replace(state=inner), action)
        return step, self._observe(step), step.reward, step.last()

    def position(self, state: Any) -> jax.Array:
        """Returns row and column of the agent, int32 [2]."""
        return state.state.agent.position

    def free(self, state: Any) -> jax.Array:
        """Returns the cells that are not walls, bool [I, J]."""
        return state.state.grid[..., 0] != self._wall

    @staticmethod
    def _observe(step: Any) -> jax.Array:
        view = step.observation.astype(jnp.float32) / _MINIGRID_IDS
        return jnp.pad(view, ((0, 0), (0, 0), (0, CHANNELS - view.shape[-1])))


class Screen(NamedTuple):
    """State of an environment, and the image on its television."""

    inner: State
    image: jax.Array  # [S, V, C], from 0 to 1


@dataclasses.dataclass(frozen=True)
class Television:
    """A screen of random pixels below the view: Pathak et al. (2017), section 4.1.

    The pixels are uniform from 0 to 1. With the kind "noise" they are drawn at each
    step, whatever the action; with "room", the same, but the screen is dark outside of
    the first room; with "remote", when the agent takes its last action (Burda et al.,
    2019, section 5).
    """

    inner: Rooms | MiniGrid  # the environment
    kind: str = "none"  # one of `TELEVISIONS`; "none" for a dark screen
    rows: int = 5  # S

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions."""
        return self.inner.actions

    @property
    def horizon(self) -> int:
        """The maximum number of steps of an episode."""
        return self.inner.horizon

    @property
    def grid(self) -> tuple[int, int]:
        """I and J."""
        return self.inner.grid

    def reset(self, rng: jax.Array) -> tuple[Screen, dict[str, jax.Array]]:
        """Returns the first state of an episode, its image and the agent's position."""
        inner_rng, rng = jax.random.split(rng)
        inner, view = self.inner.reset(inner_rng)
        image = self._draw(rng)
        return self._observe(inner, view, image)

    def step(self, state: Screen, action: jax.Array, rng: jax.Array) -> Any:
        """Takes a step, and draws the screen."""
        inner_rng, rng = jax.random.split(rng)
        inner, view, reward, done = self.inner.step(state.inner, action, inner_rng)
        image = self._draw(rng)
        if self.kind == "remote":
            pressed = action == len(self.inner.actions) - 1
            image = jnp.where(pressed, image, state.image)
        return *self._observe(inner, view, image), reward, done

    def free(self, state: Screen) -> jax.Array:
        """Returns the cells that an agent can be in, bool [I, J]."""
        return self.inner.free(state.inner)

    def _draw(self, rng: jax.Array) -> jax.Array:
        shape = (self.rows, VIEW, CHANNELS)
        if self.kind == "none":
            return jnp.zeros(shape)
        return jax.random.uniform(rng, shape)

    def _observe(
        self, inner: State, view: jax.Array, image: jax.Array
    ) -> tuple[Screen, dict[str, jax.Array]]:
        position = self.inner.position(inner)
        state = Screen(inner, image)
        if self.kind == "room":
            image = image * (position < jnp.asarray(self.inner.room)).all()
        return state, {"image": jnp.concatenate([view, image]), "position": position}


def make(
    name: str, television: str, rows: int, rooms: int, horizon: int
) -> Television | Doom:
    """Returns an environment, with its television.

    Args:
        name: "rooms", "rooms-N" for another layout, a name of xminigrid or of
            `doom.STARTS`.
        television: one of `TELEVISIONS`.
        rows: rows of the screen.
        rooms: rooms per side, of `rooms`.
        horizon: steps of an episode, of `rooms`.

    Raises:
        ModuleNotFoundError: for a package that is not installed.
        UserError: for an unknown name, or a television in a game that has none.
    """
    if name in STARTS:
        if television != "none":
            raise UserError(f"{name} has no television: data.television must be none")
        return Doom(name)
    if name.startswith(_MINIGRID):
        return Television(MiniGrid(name), television, rows)
    kind, dash, number = name.partition("-")
    try:
        if kind != "rooms":
            raise ValueError
        layout = parse_whole(number if dash else "0")
    except ValueError:
        raise UserError(
            f"{one_line(name)} must be rooms, rooms-N for another layout, a name of "
            f"xminigrid such as {_MINIGRID}FourRooms, or one of "
            f"{', '.join(STARTS)}"
        ) from None
    return Television(Rooms(layout, rooms, horizon), television, rows)
