"""Exploration: agents that are rewarded for a goal, for novelty, or for both.

`tasks.common.policy` trains the policy; the reward of an action is that of the
environment plus the intrinsic reward of the curiosity module. Episodes of evaluations
have fixed seeds, and actions are drawn from the policy:

*   `coverage`: free cells visited in an episode, in %; `coverage_all`, in any episode;
    `coverage_training`, in training so far.
*   `goal`: episodes that reach the goal, in %; `steps`: mean number of steps to it,
    that of a whole episode if it is not reached.
*   `intrinsic`: mean intrinsic reward of a step.
*   `inverse`: accuracy of the inverse model, in %; `inverse_moves`, of the steps in
    which the agent moves: against a wall, no observation tells the action.
*   `probe_position`, `probe_television`: R^2 in % of a linear reading of the agent's
    row and column, and of the television's pixels, from the features phi of states that
    a policy with uniform actions visits; fitted on one half of the episodes, by ridge
    regression, and tested on the other.

Works with models that have the methods of `models.curiosity.CuriousAgent`.

Axes: B episodes; T steps; D width of the features; I, J rows and columns of the grid;
P parts of a training.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from base.errors import UserError
from base.fields import Fields
from base.ranges import (
    BATCH,
    EXAMPLES,
    LAYERS,
    PROBABILITY,
    SIZE,
    WEIGHT,
    Choice,
    Range,
)
from figures.attention import AttentionMap, path_map
from models.curiosity import (
    curiosity_loss,
    forward_loss,
    intrinsic_reward,
    inverse_loss,
)
from tasks.common import policy
from tasks.common.batches import EndlessBatches
from tasks.common.policy import PolicyGradient, Rollout
from tasks.common.splits import held_out_rng
from tasks.exploration import environments
from tasks.exploration.doom import Doom
from tasks.exploration.environments import TELEVISIONS, VIEW, Rooms, Television
from tasks.exploration.figures import draw_visits
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.optimizers import make_optimizer
from training.state import Metrics, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Stacked, Task

_PARTS = 4  # P
_RIDGE = 1.0  # weight of the squared coefficients of a probe, of standardised features
_PROBE_SEED = 1  # key of the held-out states of probes


class ExplorationData(Fields):
    """`config.data`: the environments of an update."""

    # Environment: "rooms", "rooms-1", "MiniGrid-FourRooms", "doom", ...
    environment: str = "rooms"
    # Number of rooms per side of the grid of "rooms".
    rooms: Annotated[int, Range(1, 20, whole=True)] = 3
    horizon: Annotated[int, SIZE] = 200  # steps of an episode of "rooms"
    # Screen of random pixels below the view: "noise" draws them at each step, "room"
    # in the first room, "remote" by an action; "none" leaves the screen dark.
    television: Annotated[str, Choice(TELEVISIONS)] = "none"
    screen: Annotated[int, LAYERS] = 5  # rows of the screen of `television`
    batch_size: Annotated[int, BATCH] = 64  # number of environments
    steps: Annotated[int, SIZE] = 20  # steps of each environment per update


class CuriosityLoss(policy.PolicyLoss):
    """`config.loss`."""

    # beta of eq. 7, the share of the forward model in the loss of both models.
    beta: Annotated[float, PROBABILITY] = 0.2
    eta: Annotated[float, WEIGHT] = 1.0  # scale of the intrinsic reward
    # Scale of the policy's updates, which with Adam has the effect of lambda in eq. 7.
    policy: Annotated[float, WEIGHT] = 0.1


class ExplorationEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    episodes: Annotated[int, EXAMPLES] = 64  # number of episodes


class ExplorationConfig(ModelConfig):
    """The config of an agent that explores."""

    data: ExplorationData = ExplorationData()
    loss: CuriosityLoss = CuriosityLoss()
    evaluation: ExplorationEvaluation = ExplorationEvaluation()
    parallel: Literal["jit"] = (
        "jit"  # here only "jit": each device has all environments
    )


@flax.struct.dataclass
class Episodes:
    """Episodes by their seeds."""

    seed: np.ndarray  # uint32 [..., 2]
    environment: str = flax.struct.field(pytree_node=False)  # name of the environment


class Explorer(PolicyGradient):
    """Policy gradient that counts the visits of each cell.

    `TrainState.extra` has the environments in `running`, and the numbers of steps that
    ended in each cell, for each part of the training, in `visits`, int32 [P, I, J].
    """

    def __init__(
        self, environment: Television | Doom, steps: int, *args: Any, **options: Any
    ):
        """Creates the objective of a training of `steps`; see `PolicyGradient`."""
        self.grid, self.steps = environment.grid, steps
        functions = environment.reset, environment.step, len(environment.actions)
        super().__init__(policy.Environment(*functions), *args, **options)

    def init(self, rng: jax.Array) -> TrainState:
        """Returns the state before the first step."""
        state = super().init(rng)
        visits = jnp.zeros((_PARTS, *self.grid), jnp.int32)
        extra = {"running": state.extra, "visits": visits}
        return dataclasses.replace(state, extra=extra)

    def step(
        self, state: TrainState, batch: Any, rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """Takes a step of `PolicyGradient`, and counts its visits."""
        running, visits = state.extra["running"], state.extra["visits"]
        begin = dataclasses.replace(state, extra=running)
        new, metrics, rollout = self.update(begin, batch, rng)
        part = jnp.minimum(state.step * _PARTS // self.steps, _PARTS - 1)
        visits = visits.at[part].add(
            visits_of(rollout.following["position"], self.grid)
        )
        extra = {"running": new.extra, "visits": visits}
        return dataclasses.replace(new, extra=extra), metrics


def visits_of(position: jax.Array, grid: tuple[int, int]) -> jax.Array:
    """Returns the number of positions [..., 2] in each cell, int32 [I, J]."""
    rows, columns = position[..., 0].ravel(), position[..., 1].ravel()
    return jnp.zeros(grid, jnp.int32).at[rows, columns].add(1)


class Exploration(Task):
    """Exploration by curiosity; see the module docstring."""

    metric = ("coverage", "max")
    Config = ExplorationConfig
    table = "episodes", ("actions", "steps", "reward", "coverage")
    figure_name = "episode"

    def __init__(self, config: ConfigDict, assets: None):
        self.config = config
        try:
            self.environment = self._make(config.data.environment)
        except UserError as error:
            raise UserError(f"config.data.environment: {error}") from error
        # Evaluations have games of their own: those of training go on after them.
        self._evaluated = functools.cache(self._make)
        self.model = checks.build_model(config, actions=len(self.environment.actions))
        self.objective = self._explorer(
            self.environment,
            config.data.steps,
            environments=config.data.batch_size,
        )

    def _make(self, name: str) -> Television | Doom:
        data = self.config.data
        fields = data.television, data.screen, data.rooms, data.horizon
        return environments.make(name, *fields)

    def _explorer(
        self, environment: Television | Doom, horizon: int, **options: Any
    ) -> Explorer:
        auxiliary = policy.Auxiliary(self._init_curiosity, self.curiosity)
        scale = optax.scale(self.config.loss.policy)
        optimizer = optax.chain(
            make_optimizer(self.config),
            optax.masked(scale, lambda params: {x: x == "policy" for x in params}),
        )
        return Explorer(
            environment,
            self.config.train_steps,
            self.model,
            optimizer,
            self.config.loss,
            horizon=horizon,
            auxiliary=None if self.model.features == "none" else auxiliary,
            **options,
        )

    def _init_curiosity(self, rng: jax.Array, observation: Any) -> Any:
        image = observation["image"]
        action = jnp.zeros(len(image), jnp.int32)
        created = self.model.init(rng, image, image, action, method="transition")
        return created["params"]

    def _transition(self, params: Any, rollout: Rollout) -> Any:
        """Predictions of the transitions, [B, T, ...]."""
        image, following = (
            x["image"] for x in (rollout.observation, rollout.following)
        )  # [B, T, ., V, C]
        flat = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]), (image, following, rollout.action)
        )
        predictions = self.model.apply({"params": params}, *flat, method="transition")
        shape = rollout.action.shape
        return jax.tree.map(lambda x: x.reshape(*shape, -1), predictions)

    def curiosity(
        self, params: Any, rollout: Rollout
    ) -> tuple[jax.Array, jax.Array, Metrics]:
        """Returns intrinsic reward and loss [B, T]; see `policy.Auxiliary`."""
        features, predicted, logits = self._transition(params, rollout)
        weights, count = self.config.loss, jnp.float32(rollout.action.size)
        reward = intrinsic_reward(predicted, features, weights.eta)
        forward = forward_loss(predicted, features)
        inverse = jnp.zeros_like(forward)
        metrics = {
            "intrinsic": (reward.sum(), count),
            "forward": (forward.sum(), count),
        }
        if logits is not None:
            inverse = inverse_loss(logits, rollout.action)
            metrics["inverse"] = inverse.sum(), count
        return reward, curiosity_loss(inverse, forward, weights.beta), metrics

    def train_data(self) -> EndlessBatches:
        """Returns the seeds of the updates."""
        return policy.seed_batches(self.config.data.batch_size, self.config.seed)

    def examples(self, split: str, *, full: bool = True) -> dict[str, Stacked]:
        """Returns the episodes of a split; see `Task`."""
        seed = policy.seeds(held_out_rng(split), self.config.evaluation.episodes)
        return {split: Stacked(Episodes(seed, self.config.data.environment))}

    def outputs(
        self, state: TrainState, batch: Episodes, attention: bool
    ) -> dict[str, jax.Array]:
        """Returns the steps of the episodes; those after the end are to be ignored."""
        rollout, free = self._run(state.params, batch)
        following = rollout.following["position"]
        answer = {
            "action": rollout.action,
            "reward": rollout.reward,
            "length": 1 + jnp.argmax(rollout.done, 1),
            "position": rollout.observation["position"],
            "moves": (following != rollout.observation["position"]).any(-1),
            "last": following,
            "free": free,
            "intrinsic": jnp.zeros_like(rollout.reward),
        }
        if self.model.features != "none":
            predictions = self._transition(state.params["auxiliary"], rollout)
            eta = self.config.loss.eta
            answer["intrinsic"] = intrinsic_reward(
                predictions.predicted, predictions.features, eta
            )
            if predictions.logits is not None:
                answer["inverse"] = predictions.logits.argmax(-1) == rollout.action
        return answer

    def _run(self, params: Any, batch: Episodes) -> tuple[Rollout, jax.Array]:
        """Returns whole episodes, and the free cells of their grids, [B, I, J]."""
        environment = self._evaluated(batch.environment)
        explorer = self._explorer(environment, environment.horizon)
        rollout, end = explorer.rollout(params, jnp.asarray(batch.seed))
        return rollout, jax.vmap(environment.free)(end.state)

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns the metrics of the module docstring."""
        answers = [*evaluation.answers[evaluation.split]]
        visited = np.stack([cells_visited(x) for x in answers])
        free = np.stack([x["free"] for x in answers])
        reached = np.array([_total(x) > 0 for x in answers])
        lengths = np.array([x["length"] for x in answers])
        trained = np.asarray(state.extra["visits"]).any(0)
        shares = (visited & free).sum((1, 2)) / free.sum((1, 2))
        scores = {
            "coverage": 100 * float(shares.mean()),
            "coverage_all": _percent(visited.any(0), free.any(0)),
            "coverage_training": _percent(trained, free.any(0)),
            "goal": 100 * float(reached.mean()),
            "steps": float(np.where(reached, lengths, self.environment.horizon).mean()),
            "intrinsic": float(_steps(answers, "intrinsic").mean()),
        }
        if "inverse" in answers[0]:
            correct = _steps(answers, "inverse")
            moves = _steps(answers, "moves")
            scores["inverse"] = 100 * float(correct.mean())
            if moves.any():
                scores["inverse_moves"] = 100 * float(correct[moves].mean())
        if self.model.features != "none":
            scores |= self.probes(state, evaluation.split)
        return scores

    def probes(self, state: TrainState, split: str) -> Scores:
        """Returns what a linear model reads from the features; see the module."""
        count = 2 * -(-self.config.evaluation.episodes // 2)
        seed = policy.seeds(held_out_rng(split, _PROBE_SEED), count)
        states = Episodes(seed, self.config.data.environment)
        features, position, screen = jax.jit(self._random_states)(state.params, states)
        scores = {"probe_position": probe(features, position)}
        if self.config.data.television != "none":
            scores["probe_television"] = probe(features, screen)
        return scores

    def _random_states(self, params: Any, batch: Episodes) -> tuple[jax.Array, ...]:
        """Features, positions and screens of a policy with uniform actions."""
        zeros = jax.tree.map(jnp.zeros_like, params["policy"])  # all logits are 0
        rollout, _ = self._run(params | {"policy": zeros}, batch)
        image = rollout.observation["image"]  # [B, T, ., V, C]
        flat = image.reshape(-1, *image.shape[2:])
        variables = {"params": params["auxiliary"]}
        features = self.model.apply(variables, flat, method="phi")
        screen = image[:, :, VIEW:]
        parts = features, rollout.observation["position"], screen
        return tuple(x.reshape(len(image), image.shape[1], -1) for x in parts)

    def row(self, number: int, example: Any, answer: Any) -> Sequence[Any]:
        """Returns actions, steps, reward and coverage of an episode."""
        share = _percent(cells_visited(answer), answer["free"])
        text, length = self._text(answer), int(answer["length"])
        return text, length, f"{_total(answer):g}", f"{share:.1f}"

    def _text(self, answer: Any) -> str:
        """The actions, such as "up 3, press"."""
        names = self.environment.actions
        groups = itertools.groupby(answer["action"][: answer["length"]])
        runs = [(names[action], len([*group])) for action, group in groups]
        return ", ".join(f"{name} {n}" if n > 1 else name for name, n in runs)

    def parse(self, line: str, options: NoOptions) -> Episodes:
        """Returns the episode of an environment's name and a seed."""
        name, seed = policy.parse_seed(line)
        if self._evaluated(name).actions != self.environment.actions:
            trained = self.config.data.environment
            raise UserError(f"{name} has not the actions of {trained}")
        return Episodes(seed, name)

    def show(self, example: Episodes, answer: Any) -> Prediction:
        """Returns the actions and the reward; its score is the share of cells."""
        share = _percent(cells_visited(answer), answer["free"])
        reward = _total(answer)
        text = f"{self._text(answer)}\treward {reward:g}"
        caption = f"{share:.0f} % of the cells, reward {reward:g}"
        environment, maps = self._evaluated(example.environment), ()
        if isinstance(environment, Television) and isinstance(environment.inner, Rooms):
            maps = (_trajectory(environment.inner, answer),)
        return Prediction(text, share / 100, maps, caption=caption, details=answer)

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the visits of each cell, and the intrinsic reward of each step."""
        answer = prediction.details
        length = answer["length"]
        visits = visits_of(answer["position"][:length], answer["free"].shape)
        return draw_visits(
            np.asarray(visits)[None],
            answer["free"],
            answer["intrinsic"][:length],
            title=f"{title}: {prediction.caption}",
            path=path,
        )

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the visits of each cell in each quarter of the training."""
        visits = np.asarray(state.extra["visits"])
        free = jax.vmap(self.environment.free)(state.extra["running"].state).any(0)
        path = folder / f"visits_{evaluation.split}.png"
        title = f"Visits in training, step {int(state.step):,}"
        return [
            draw_visits(visits, np.asarray(free), np.zeros(0), title=title, path=path)
        ]


def _trajectory(rooms: Rooms, answer: Any) -> AttentionMap:
    """The cells of an agent, at the start and after each step."""
    length = int(answer["length"])
    cells = np.concatenate([answer["position"][:1], answer["last"][:length]])
    steps = ["start", *(rooms.actions[action] for action in answer["action"][:length])]
    boxes = np.concatenate([cells, cells + 1], -1)
    note = "Frames: cells visited; grey: walls; blue: doors; green: the goal."
    return path_map("trajectory", boxes, steps, rooms.image(), key="cell", note=note)


def cells_visited(answer: Any) -> np.ndarray:
    """Returns the cells that an episode visits, bool [I, J]."""
    length, visited = answer["length"], np.zeros(answer["free"].shape, bool)
    for positions in (answer["position"][:length], answer["last"][:length]):
        visited[tuple(positions.T)] = True
    return visited


def _percent(part: np.ndarray, whole: np.ndarray) -> float:
    return 100 * float((part & whole).sum() / whole.sum())


def _total(answer: Any) -> float:
    return float(answer["reward"][: answer["length"]].sum())


def _steps(answers: Sequence[Any], name: str) -> np.ndarray:
    return np.concatenate([x[name][: x["length"]] for x in answers])


def probe(features: jax.Array, target: jax.Array) -> float:
    """Fits ridge regression on the first half of the episodes; R^2 in % on the others.

    `features` [B, T, D] predict `target` [B, T, any].
    """
    x, y = (np.asarray(z, np.float64) for z in (features, target))
    half = len(x) // 2
    (x, other_x), (y, other_y) = (
        [part.reshape(-1, z.shape[-1]) for part in (z[:half], z[half:])] for z in (x, y)
    )
    mean, std, middle = x.mean(0), x.std(0) + 1e-8, y.mean(0)
    x, other_x = (x - mean) / std, (other_x - mean) / std
    gram = x.T @ x + _RIDGE * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x.T @ (y - middle))  # [D, any]
    errors = np.square(other_y - middle - other_x @ weights).sum()
    return 100 * float(1 - errors / np.square(other_y - other_y.mean(0)).sum())
