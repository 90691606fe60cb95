"""The contract between a task and the loop that trains it.

Papers differ in the step (two optimisers in a GAN, a baseline in REINFORCE), so the
contract is cut there: a task owns its data, step, metrics and figures, the loop owns
devices, checkpoints, schedules and logs.
"""

import abc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
from ml_collections import ConfigDict

from errors import UserError

# Metrics leave a step as {name: (sum, count)}; the log shows sum / count over the steps
# since its last line. A metric named `tokens` is shown as a rate: its sum a second.
Metrics = dict[str, tuple[jax.Array, jax.Array]]


class Source(Protocol):
    """Random access to batches; batch i depends on (seed, i) only, for any i >= 0."""

    def __getitem__(self, index: int) -> Any:
        """Returns a pytree of numpy arrays; a few different shapes are fine."""


class Prediction(NamedTuple):
    """What a model makes of an input, as text, and what that is ranked by."""

    text: str
    score: float


def warn_of_size(
    line: int, size: int, low: int, high: int, *, of: str, learned: str
) -> None:
    """Tells on standard error of an input of a size that was none of training.

    Args:
        line: of the input, from 1.
        size: how much there is of it.
        low: the least in training.
        high: the most.
        of: what is counted.
        learned: what stands before the sizes of training.
    """
    if not low <= size <= high:
        print(
            f"warning: line {line} has {size} {of}: {learned} {low} to {high}",
            file=sys.stderr,
        )


class Task(abc.ABC):
    """What a config's `task` must offer; built from the config alone.

    Attributes:
        metric: the name of the validation metric that picks the best checkpoint, and
            whether "max" or "min" of it is best.
    """

    metric: ClassVar[tuple[str, str]]

    def __init__(self, config: ConfigDict):
        """Keeps the config; subclasses check their cross-field rules, read no data.

        Raises:
            UserError: (subclasses) for values that do not fit together.
        """
        self.config = config

    def check_model(self) -> None:
        """Builds the state by its shapes alone, for a model states its rules then.

        Raises:
            UserError: for a rule of the model that `config.model` breaks.
        """
        try:
            jax.eval_shape(self.init_state, jax.random.key(0))
        except (TypeError, ValueError) as error:
            where = "config.model: "
            if self.is_of_a_field(error):
                where = "config.model."
            elif str(error).partition(" ")[0] in self.config:
                where = "config."
            raise UserError(f"{where}{error}") from error

    def is_of_a_field(self, error: Exception) -> bool:
        """Whether an error of the model begins with a field of `config.model`."""
        return str(error).partition(" ")[0] in self.config.model

    @abc.abstractmethod
    def prepare(self, workdir: Path, *, training: bool) -> None:
        """Gets ready what a run keeps beside its checkpoints, in `workdir/assets/`.

        Args:
            workdir: the run directory.
            training: build the assets where they are missing, and read the training
                data; otherwise the run directory alone is read.
        """

    @abc.abstractmethod
    def init_state(self, rng: jax.Array) -> Any:
        """Returns a fresh state: a pytree with `.step` (int32, 0) and `.params`."""

    @abc.abstractmethod
    def train_data(self) -> Source:
        """Returns the training batches; any random-access source will do."""

    @abc.abstractmethod
    def train_step(self, state: Any, batch: Any, rng: jax.Array) -> tuple[Any, Metrics]:
        """Pure; returns the state with `.step` one higher, and the metrics.

        `rng` is this step's own. Sums over the batch pass through `parallel.total`
        (as `state.gradients` does), so that the same step runs under `pmap`.
        """

    @abc.abstractmethod
    def evaluate(
        self, state: Any, split: str, *, out_dir: Path | None = None
    ) -> dict[str, float]:
        """Returns metrics that are exact over the whole split."""

    def figures(self, state: Any, out_dir: Path) -> list[Path]:
        """Draws PNG files into `out_dir` and returns their paths; none by default."""
        return []

    def predict(self, state: Any, inputs: Sequence[Any]) -> Any:
        """Returns what the model makes of `inputs`, for tasks that predict.

        For each input its `Prediction`s, best first; of an empty one, one without text.
        """
        raise NotImplementedError(f"{type(self).__name__} does not predict")
