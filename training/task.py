"""Interface of a task to the programs that train it, evaluate it and predict with it.

The training loop trains the `objective` on `train_data` and calls `validate`. `eval.py`
calls `evaluate` (which writes no files), `tables` and `figures`; `predict.py` calls
`predict` and `draw`. None of the three depends on a particular task.

Assets of a run, such as a vocabulary, are created before the task: see `create`.
"""

import abc
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from ml_collections import ConfigDict

from base import asset_files
from base.errors import UserError
from base.options import Options
from figures.attention import AttentionMap
from training import checks, optimizers
from training.objective import Objective
from training.state import Scores, TrainState

# Input lines by line number, from 1.
Lines = Mapping[int, str]


class Source(Protocol):
    """Random access to batches; batch i depends on (seed, i) only, for any i >= 0."""

    def __getitem__(self, index: int) -> Any:
        """Returns a pytree of numpy arrays; each new shape costs a compilation."""

    def part(self, index: int, pieces: Sequence[int], count: int) -> Any:
        """Returns some of `count` equal pieces of the rows, for one of several hosts.

        Called only in a job of several processes.
        """


NoOptions = Options  # for tasks without options


class Evaluation(NamedTuple):
    """Evaluation of a state on a split.

    Attributes:
        split: name of the split.
        scores: exact metrics of the whole split; empty if it was not evaluated.
        outputs: data for the task's `tables` and `figures`, such as captions.
    """

    split: str
    scores: Scores = {}
    outputs: Any = None


class Prediction(NamedTuple):
    """A predicted text and its score.

    Attributes:
        text: printed by predict.py; empty if the prediction is an image.
        score: ranks the predictions of one input.
        attention: attention maps of the model, if requested.
        others: the next best predictions of the same input, best first.
        details: data for the task's `draw`.
    """

    text: str
    score: float
    attention: tuple[AttentionMap, ...] = ()
    others: tuple["Prediction", ...] = ()
    details: Any = None


class Task(abc.ABC):
    """Base class of tasks; a config's `task` is a subclass.

    Attributes:
        metric: name of the validation metric that selects the best checkpoint, and
            "max" or "min".
        ranges: ranges of the fields that the task reads, by name, such as
            {"data.batch_size": SIZE}; numbers without a range must be finite.
        arrays: large arrays whose sizes are fields; see `checks.check_arrays`.
        model_methods: names of the methods and properties of the model that the task
            calls, besides `init` and `apply`.
        model_fields: field of the config by field of the model, for fields outside
            `config.model`.
        EvaluationOptions: a frozen dataclass whose fields become flags of eval.py.
        Options: a frozen dataclass whose fields become flags of predict.py; see
            `options`.
        figure_name: prefix of figure files; predict.py draws line 1 into
            <figure_name>_0001.png.
        needs_figures: whether predictions are images, so that predict.py requires
            `--figures`.
        objective: the training objective; set by `__init__`.
    """

    metric: ClassVar[tuple[str, str]]
    ranges: ClassVar[checks.Ranges] = {}
    arrays: ClassVar[Mapping[tuple[str, ...], int]] = {}
    model_methods: ClassVar[Sequence[str]] = ()
    model_fields: ClassVar[Mapping[str, str]] = {}
    EvaluationOptions: ClassVar[type] = NoOptions
    Options: ClassVar[type] = NoOptions
    figure_name: ClassVar[str] = "attention"
    needs_figures: ClassVar[bool] = False
    objective: Objective

    @classmethod
    def check(cls, config: ConfigDict, memory: int | None = None) -> None:
        """Checks a config; reads no data.

        The model is initialised with abstract values.

        Args:
            config: the config.
            memory: bytes of memory of the device; None for those of this machine.

        Raises:
            UserError: for fields that are out of range or contradict each other, or
                sizes that do not fit into memory.
        """
        checks.check_ranges(config)
        checks.check_architectures(config, cls.model_methods)
        checks.check_arrays(config, cls.arrays, memory)
        cls.check_rules(config)
        state = checks.check_model(cls(config).objective.init, cls.model_fields)
        checks.check_state(config, state, memory)

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks fields that depend on each other; none by default.

        Args:
            config: a config whose fields are in their ranges.

        Raises:
            UserError: for fields that contradict each other.
        """
        del config

    @classmethod
    def warnings(cls, config: ConfigDict) -> list[str]:
        """Returns a line for each accepted setting that is probably a mistake."""
        return optimizers.warnings(config)

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Any:
        """Returns the assets of the task; None by default.

        Args:
            config: a config that `check` accepts.
            workdir: the run directory, with the assets in `assets/`.
            training: True to read the training data and write the assets, by
                `asset_files.write`; False to read only the run directory.

        Raises:
            UserError: for data that cannot be read.
        """
        return None

    @abc.abstractmethod
    def __init__(
        self, config: ConfigDict, assets: Any = None, *, axis_name: str | None = None
    ):
        """Builds the model and the objective.

        Args:
            config: a config that `check` accepts.
            assets: result of `prepare`; None takes sizes from the config, which is
                enough to check shapes.
            axis_name: `pmap` axis of the devices that a step sums over; None if arrays
                span the whole batch.
        """

    @abc.abstractmethod
    def train_data(self) -> Source:
        """Returns the training batches."""

    @abc.abstractmethod
    def evaluate(self, state: TrainState, split: str, options: Any) -> Evaluation:
        """Evaluates a state on a whole split; writes no files.

        Args:
            state: a training state.
            split: "validation" or "test".
            options: an instance of `EvaluationOptions`.
        """

    def validate(self, state: TrainState) -> Scores:
        """Returns the validation scores that are logged during training.

        By default the scores of `evaluate`; override this for a cheaper evaluation.
        """
        return self.evaluate(state, "validation", self.EvaluationOptions()).scores

    def tables(self, evaluation: Evaluation, folder: Path) -> list[Path]:
        """Writes text files of an evaluation and returns their paths; none by default.

        Args:
            evaluation: result of `evaluate`.
            folder: folder of the files.
        """
        return []

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws PNG files and returns their paths; none by default.

        Args:
            state: a training state.
            evaluation: an evaluation whose split the examples come from; its scores, if
                any, are drawn as charts.
            folder: folder of the files.
        """
        return []

    def no_figures(self) -> str:
        """Returns the line to print if `figures` has drawn nothing."""
        reason = "nothing to draw" if self.can_draw() else "the model has no attention"
        return f"no figures: {reason}"

    def predict(
        self, state: TrainState, lines: Lines, options: Any, attention: bool
    ) -> Iterable[Prediction]:
        """Yields the prediction of each line, in order.

        Args:
            state: a training state.
            lines: input lines, without blank ones.
            options: an instance of `Options`.
            attention: whether predictions include attention maps.

        Raises:
            UserError: for a line that cannot be read, or an option out of range.
        """
        raise UserError(f"the task {type(self).__name__} does not predict")

    def can_draw(self) -> bool:
        """Returns whether `draw` can draw predictions; True by default.

        Override this if `draw` shows attention and the model may have none.
        """
        return True

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws a prediction with attention maps as a PNG; returns `path`."""
        raise UserError(f"the task {type(self).__name__} draws no predictions")


def create(
    config: ConfigDict,
    workdir: Path,
    *,
    training: bool,
    axis_name: str | None = None,
) -> Task:
    """Returns the task of a config, built from its assets.

    Args:
        config: a config that `config.task.check` accepts.
        workdir: the run directory.
        training: see `Task.prepare`.
        axis_name: see `Task`.

    Raises:
        UserError: for data that cannot be read or are not those of the checkpoints of
            the run, or an asset that is damaged.
    """
    folder = Path(workdir) / "assets"
    if not training:
        asset_files.verify(folder)
    assets = config.task.prepare(config, workdir, training=training)
    if training:
        asset_files.seal(folder)
    return config.task(config, assets, axis_name=axis_name)
