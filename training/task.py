"""The contract of a task.

A task gives its data, its loss, what it computes for examples, its score, and how one
example is read and shown. From these, `training.evaluate` makes evaluations, tables,
figures and predictions.

Assets of a run, such as a vocabulary, are created before the task: see `create`.
"""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import numpy as np
from ml_collections import ConfigDict

from base import asset_files, spread
from base.errors import WRITTEN_AGAIN, UserError
from base.options import Options
from base.records import SearchTree
from figures.attention import AttentionMap, draw_attention
from training import checks
from training.configuration import ModelConfig
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


class Stacked(Sequence):
    """Examples, or answers to them, as the rows of a pytree of [N, ...] arrays.

    An index gives the row as a pytree, a slice the rows as another `Stacked`.

    Attributes:
        arrays: the pytree.
    """

    def __init__(self, arrays: Any):
        self.arrays = arrays

    def __len__(self) -> int:
        return len(jax.tree.leaves(self.arrays)[0])

    def __getitem__(self, index: Any) -> Any:
        rows = jax.tree.map(lambda x: x[index], self.arrays)
        return Stacked(rows) if isinstance(index, slice) else rows


class Evaluation(NamedTuple):
    """Evaluation of a state on a split.

    Attributes:
        split: name of the split.
        scores: exact metrics of the whole split.
        examples: the examples by group; see `Task.examples`.
        answers: the answers to them.
        options: an instance of `Task.EvaluationOptions`; None during training.
    """

    split: str
    scores: Scores = {}
    examples: Mapping[str, Sequence[Any]] = {}
    answers: Mapping[str, Sequence[Any]] = {}
    options: Any = None


class Prediction(NamedTuple):
    """A predicted text and its score.

    Attributes:
        text: printed by predict.py; empty if the prediction is an image.
        score: ranks the predictions of one input.
        attention: attention maps of the model, if requested.
        others: the next best predictions of the same input, best first.
        caption: end of the title of its figure.
        details: data for the task's `draw`.
        tree: the beam search that finds it, with labels as tokens, if requested.
        source: the input as a text that names it in a list; empty for none.
    """

    text: str
    score: float
    attention: tuple[AttentionMap, ...] = ()
    others: tuple["Prediction", ...] = ()
    caption: str = ""
    details: Any = None
    tree: SearchTree | None = None
    source: str = ""

    @property
    def heading(self) -> str:
        """The caption if it extends the text, else the text."""
        extends = self.caption.startswith((f"{self.text}, ", f"{self.text} ("))
        return self.caption if self.text and extends else self.text


class Task(abc.ABC):
    """Base class of tasks; a config's `task` is a subclass.

    Attributes:
        metric: name of the validation metric that selects the best checkpoint, and
            "max" or "min".
        Config: the dataclass that declares the fields of a config.
        EvaluationOptions: a frozen dataclass whose fields become flags of eval.py.
        Options: a frozen dataclass whose fields become flags of predict.py; see
            `options`.
        figure_name: prefix of figure files; predict.py draws line 1 into
            <figure_name>_0001.png.
        table: name and columns of the file that eval.py writes, with a `row` for each
            example; None for no file.
        batch_size: number of examples that `answers` computes together.
        one_by_one: whether lines and drawn examples are answered each alone, as their
            arrays may have different shapes.
        needs_figures: whether predictions are images, so that predict.py requires
            `--figures`.
        search: the configured search, a `generation.search.Search`; None for a task
            that searches for no output.
        objective: the training objective; set by `__init__`.
    """

    metric: ClassVar[tuple[str, str]]
    Config: ClassVar[type] = ModelConfig
    EvaluationOptions: ClassVar[type] = NoOptions
    Options: ClassVar[type] = NoOptions
    figure_name: ClassVar[str] = "attention"
    table: ClassVar[tuple[str, tuple[str, ...]] | None] = None
    batch_size: ClassVar[int] = 100
    one_by_one: ClassVar[bool] = True
    needs_figures: ClassVar[bool] = False
    search: Any = None
    objective: Objective

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Any:
        """Returns the assets of the task; None by default.

        Args:
            config: a config that `configuration.check` accepts.
            workdir: the run directory, with the assets in `assets/`.
            training: True to read the training data and write the assets, by
                `asset_files.write`; False to read only the run directory.

        Raises:
            UserError: for data that cannot be read.
        """
        return None

    @abc.abstractmethod
    def __init__(self, config: ConfigDict, assets: Any):
        """Builds the model and the objective.

        Args:
            config: a config that `configuration.check` accepts.
            assets: result of `prepare`.
        """

    @abc.abstractmethod
    def train_data(self) -> Source:
        """Returns the training batches."""

    def examples(self, split: str, *, full: bool = True) -> Mapping[str, Sequence[Any]]:
        """Returns what is evaluated, in groups; the first group is the split itself.

        Args:
            split: "validation" or "test".
            full: False during training, where further groups may be left out.
        """
        raise NotImplementedError

    def batch(self, examples: Any) -> Any:
        """Returns examples, by default pytrees of arrays, as arrays [B, ...]."""
        if isinstance(examples, Stacked):
            return examples.arrays
        return jax.tree.map(lambda *x: np.stack(x), *examples)

    def outputs(self, state: TrainState, batch: Any, attention: bool) -> Any:
        """Returns a pytree of [B, ...] arrays; a pure function.

        Args:
            state: a training state.
            batch: result of `batch`.
            attention: whether to return attention; static.
        """
        raise NotImplementedError

    def answers(
        self,
        state: TrainState,
        examples: Sequence[Any],
        options: Any = None,
        *,
        attention: bool = False,
    ) -> Sequence[Any]:
        """Returns the answer to each example, by default its row of `outputs`.

        The work is spread over the processes of a job.

        Args:
            state: a training state.
            examples: examples of one group, or of lines.
            options: an instance of `EvaluationOptions` or `Options`; None during
                training.
            attention: whether answers need attention.
        """

        def outputs(start: int, function: Callable[..., Any]) -> Any:
            rows = self.batch(examples[start : start + self.batch_size])
            return function(state, rows, attention)

        def part(start: int) -> Any:
            return jax.tree.leaves(jax.device_get(outputs(start, self._jit_outputs)))

        parts = spread.each(part, range(0, len(examples), self.batch_size))
        leaves = [np.concatenate(each) for each in zip(*parts, strict=True)]
        # Traced again only where another process has computed the first part.
        shapes = outputs(0, self._jit_outputs.eval_shape)
        return Stacked(jax.tree.unflatten(jax.tree.structure(shapes), leaves))

    @functools.cached_property
    def _jit_outputs(self) -> Any:
        return jax.jit(self.outputs, static_argnums=2)

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns the metrics of a split, exact for all its examples.

        Args:
            state: a training state.
            evaluation: an evaluation without its scores.
        """
        raise NotImplementedError

    def rows(self, evaluation: Evaluation) -> list[Sequence[Any]]:
        """Returns the rows of `table`, by default one for each example of the split."""
        group = next(iter(evaluation.examples))
        pairs = zip(evaluation.examples[group], evaluation.answers[group], strict=True)
        return [self.row(number, *pair) for number, pair in enumerate(pairs, 1)]

    def row(self, number: int, example: Any, answer: Any) -> Sequence[Any]:
        """Returns the cells of an example, with its number from 1."""
        raise NotImplementedError

    def picked(self, split: str, count: int) -> Mapping[str, Any]:
        """Returns at most `count` examples to look at, by name.

        By default the first of a split.
        """
        examples = next(iter(self.examples(split, full=False).values()))[:count]
        return {f"{self.figure_name}_{i}": x for i, x in enumerate(examples, 1)}

    def drawn(self, split: str) -> Mapping[str, Any]:
        """Returns the examples whose attention is drawn, by the name of the figure."""
        return self.picked(split, 3)

    def parse(self, line: str, options: Any) -> Any:
        """Returns the example of an input line.

        Args:
            line: the line.
            options: an instance of `Options`.

        Raises:
            UserError: for a line that cannot be read.
        """
        raise UserError(f"the task {type(self).__name__} does not predict")

    def check_options(self, options: Any) -> None:
        """Checks options that depend on the config; by default those of `search`.

        Args:
            options: an instance of `Options`.

        Raises:
            FieldError: for an option that is out of range.
        """
        if self.search is not None:
            options.search(self.search)

    def unusual(self, example: Any, answer: Any) -> Sequence[str]:
        """Returns warnings about an input line, such as "has 70 words"."""
        return ()

    def show(self, example: Any, answer: Any) -> Prediction:
        """Returns an answer as text, with its score and its labelled attention."""
        raise NotImplementedError

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path | None:
        """Draws the attention of a prediction as a PNG.

        Returns:
            `path`; None if there is no attention.
        """
        if not prediction.attention:
            return None
        title += f": {prediction.caption}" if prediction.caption else ""
        return draw_attention(prediction.attention, title, path)

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the task's special figures as PNGs; none by default.

        Args:
            state: a training state.
            evaluation: an evaluation of it; after training, one without scores.
            folder: folder of the files.
        """
        return []


def create(config: ConfigDict, workdir: Path, *, training: bool) -> Task:
    """Returns the task of a config, built from its assets.

    Args:
        config: a config that `configuration.check` accepts.
        workdir: the run directory.
        training: see `Task.prepare`.

    Raises:
        UserError: for data that cannot be read or are not those of the checkpoints of
            the run, an asset that is damaged, or a field that the model rejects.
    """
    folder = Path(workdir) / "assets"
    if not training:
        asset_files.verify(folder)
    try:
        assets = config.task.prepare(config, workdir, training=training)
    except FileNotFoundError as error:
        if training or folder not in Path(error.filename or "").parents:
            raise
        raise UserError(f"{error.filename} is missing: {WRITTEN_AGAIN}") from None
    if training:
        asset_files.seal(folder)
    with checks.model_errors(config):
        return config.task(config, assets)
