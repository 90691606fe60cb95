"""Questions about short stories: the twenty bAbI tasks, or a user's stories.

Weston et al. (2016); Sukhbaatar et al. (2015), section 4. `tasks.questions.babi`
generates the stories. In single-task training each task has `data.repeats` models,
which differ in their initial parameters; all are trained side by side, as one array per
parameter. In joint training one model learns all tasks. The loss is the cross-entropy
of the answers; with `loss.supervision` also that of the attention: hop k is trained on
the k-th supporting fact, and the last hop on all remaining facts.

Works with any model that has the fields `vocab_size` (W) and `memory`, returns logits
[B, W] from `model.apply(variables, batch, train=..., linear=...)`, and sows an
`AttentionRecord` with weights [B, 1, K, N].

Axes: B batch; P models; R repeats; K hops; N memory slots; W vocabulary.
"""

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from base.errors import FieldError, UserError
from base.options import Options, option
from base.ranges import BATCH, COUNT, EXAMPLES, FRACTION, SIZE, TEXT, WEIGHT, Range
from tasks.questions import answers as question_answers
from tasks.questions import metrics as answers
from tasks.questions.babi import sources, text
from tasks.questions.babi.encoding import Batches, Questions, encode
from tasks.questions.babi.sources import Source
from tasks.questions.inputs import QuestionData, Training
from tasks.questions.linear_start import LinearStart
from tasks.questions.models import Outputs, QuestionModels, select
from training import checks
from training.optimizers import make_optimizer
from training.state import LossResult, Scores, TrainState
from training.task import Evaluation, Lines, NoOptions, Prediction, Task

TRAININGS = ("single", "joint")
_SOURCES = ("generated", "files")
_TASK = Range(1, 20, whole=True)
_REPEATS = Range(1, 1000, whole=True)
_FIGURES = 3  # questions of each task in a figure folder
_PLACEHOLDER = 200  # size of a vocabulary that is not known yet


@dataclasses.dataclass(frozen=True)
class QuestionOptions(Options):
    """Flags of predict.py for question answering."""

    task: int | None = option(
        None, "Task whose model answers; the first by default.", _TASK
    )
    repeat: int = option(
        1, "Number of the model that answers, of config.data.repeats.", _REPEATS
    )


class QuestionAnswering(Task):
    """Question answering; see the module docstring."""

    metric = ("error", "min")
    ranges = {
        **checks.SUPERVISED,
        "data.source": TEXT,
        "data.tasks": _TASK.each(),
        "data.training": TEXT,
        "data.questions": dataclasses.replace(EXAMPLES, min=10),
        "data.repeats": _REPEATS,
        "data.memory": SIZE,
        "data.time_noise": FRACTION,
        "data.batch_size": BATCH,
        "data.files.train": TEXT,
        "data.files.validation": TEXT,
        "data.files.test": TEXT,
        "loss.linear_steps": COUNT,
        "loss.supervision": WEIGHT,
    }
    arrays = {
        ("data.batch_size", "data.repeats", "data.memory", "model.width"): 4,
        ("data.repeats", "data.memory", "model.width"): 4,
    }
    model_fields = {"memory": "data.memory"}
    Options = QuestionOptions

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks the source, the training and the tasks; see `Task`."""
        data = config.data
        checks.choice("data.source", data.source, _SOURCES)
        checks.choice("data.training", data.training, TRAININGS)
        if data.source != "files":
            checks.unread_files(config, "data.files", "data.source=files")
        if not data.tasks or len(set(data.tasks)) < len(data.tasks):
            accepted = "a list of at least one task, without repeats"
            raise FieldError("config.data.tasks", data.tasks, accepted)

    @classmethod
    def warnings(cls, config: ConfigDict) -> list[str]:
        """Adds a line if the linear start may last until the end; see `Task`."""
        effect = "models may be trained without a softmax"
        lines = checks.unfinished_phase(config, "linear_steps", effect)
        return super().warnings(config) + lines

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Source:
        """Returns the stories and vocabularies; see `Task`."""
        data, stories = config.data, None
        if data.source == "generated":
            stories = sources.generated(data.tasks, data.questions)
        elif training:
            stories = sources.from_files(data.files.to_dict())
        if training:
            return sources.create(stories, workdir, joint=data.training == "joint")
        return sources.load(stories, workdir)

    def __init__(
        self,
        config: ConfigDict,
        assets: Source | None = None,
        *,
        axis_name: str | None = None,
    ):
        """Builds the models and the objective; see `Task`."""
        self.config, self.source = config, assets
        self.data = QuestionData(config, assets)
        self.model = checks.build_model(
            config.architecture,
            config.model,
            vocab_size=assets.vocab_size if assets else _PLACEHOLDER,
            memory=config.data.memory,
        )
        self.models = QuestionModels(
            self.model,
            self.data.model_slots,
            memory=config.data.memory,
            supervision=config.loss.supervision,
        )
        self.objective = LinearStart(
            self.models.init,
            self.loss,
            make_optimizer(config),
            models=self.models.count,
            linear_steps=config.loss.linear_steps,
            validation_losses=self.validation_losses,
            axis_name=axis_name,
        )

    @functools.cached_property
    def training(self) -> Training:
        """The training questions by number of slots; see `QuestionData.training`."""
        return self.data.training(self.models.groups)

    def loss(self, params, batch, rng, state) -> LossResult:
        """Returns the loss of all models; see `QuestionModels.loss`."""
        texts = {size: texts for size, (_, texts) in self.training.items()}
        return self.models.loss(params, batch, rng, state, texts)

    def train_data(self) -> Batches:
        """Returns the training batches; see `tasks.questions.babi.encoding.Batches`."""
        return self.data.batches(self.training)

    def _outputs(
        self, state: TrainState, split: str
    ) -> dict[int, tuple[Outputs, Questions]]:
        """Outputs of the models of each task for a split."""
        outputs = {}
        for task, questions in self.data.questions(split).items():
            members, slots = self.data.members(task), self.data.slots[task]
            part = self.models.outputs(state, members, questions, slots)
            outputs[task] = part, questions
        return outputs

    def validation_losses(self, state: TrainState) -> np.ndarray:
        """Returns the mean validation loss [P] of each model."""
        outputs = self._outputs(state, "validation").values()
        losses = [part.losses.mean(1) for part, _ in outputs]
        return np.mean(losses, 0) if self.data.joint else np.concatenate(losses)

    def evaluate(self, state: TrainState, split: str, options: NoOptions) -> Evaluation:
        """Evaluates a split; see `Task`.

        Returns:
            Scores in per cent: those of `tasks.questions.metrics.summary`;
            `training_error`, the mean error on the training questions; `fact_K`, how
            often the maximum weight of hop K is on a supporting fact, the mean over
            tasks and repeats.
            Outputs: the error [R] and the hits [R, K] of each task.
        """
        training = {
            task: _errors(part)
            for task, (part, _) in self._outputs(state, "train").items()
        }
        errors, hits = {}, {}
        for task, (part, questions) in self._outputs(state, split).items():
            errors[task] = _errors(part)
            slots, index = self.data.slots[task], np.arange(len(questions))
            facts = questions.batch(index, slots, memory=slots)["facts"]
            hits[task] = answers.attention_on_facts(part.top, facts)
        scores = answers.summary(errors, training)
        scores["training_error"] = float(np.mean(list(training.values())))
        hops = np.nanmean([x.mean(0) for x in hits.values()], 0)
        scores |= {f"fact_{k}": float(x) for k, x in enumerate(hops, 1)}
        return Evaluation(split, scores, (errors, hits))

    def validate(self, state: TrainState) -> Scores:
        """Returns the mean validation `error`, and how many models are `linear`."""
        outputs = self._outputs(state, "validation").values()
        error = float(np.mean([_errors(part).mean() for part, _ in outputs]))
        return {"error": error, "linear": float(state.extra["linear"].sum())}

    def tables(self, evaluation: Evaluation, folder: Path) -> list[Path]:
        """Writes the error and the attention on facts of each task and repeat."""
        path = folder / f"tasks_{evaluation.split}.tsv"
        return [question_answers.write(*evaluation.outputs, path)]

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws errors by task, and the attention of questions of each task."""
        split, paths = evaluation.split, []
        if evaluation.scores:
            errors, _ = evaluation.outputs
            title = f"Error by task ({split} split)"
            path = folder / f"errors_{split}.png"
            paths.append(question_answers.draw_errors(errors, title, path))
        for task, splits in self.source.stories.items():
            name = "own_stories" if task == sources.OWN_STORIES else f"task_{task}"
            for number, lines in enumerate(splits[split][:_FIGURES], 1):
                last = max(n for n, line in enumerate(lines, 1) if line.answer)
                prediction = self._answer(state, task, 1, lines[:last], "a story")
                title = f"{name.replace('_', ' ').capitalize()} ({split} split)"
                path = folder / f"{name}_{number}_{split}.png"
                paths.append(self.draw(prediction, title, path))
        return paths

    def predict(
        self,
        state: TrainState,
        lines: Lines,
        options: QuestionOptions,
        attention: bool,
    ) -> Iterable[Prediction]:
        """Yields the answer to the story and question on each line; see `Task`.

        The format is that of `tasks.questions.babi.text.parse`, the score the
        log-probability of the answer, in nats.
        """
        task = options.task or self.data.tasks[0]
        if task not in self.data.tasks:
            accepted = ", ".join(map(str, self.data.tasks))
            raise UserError(f"--task is {task}: must be one of {accepted}")
        repeats = self.config.data.repeats
        if options.repeat > repeats:
            raise UserError(f"--repeat is {options.repeat}: must be at most {repeats}")
        stories = {n: text.parse(x, f"line {n}") for n, x in lines.items()}
        for number, story in stories.items():
            yield self._answer(state, task, options.repeat, story, f"line {number}")

    def _answer(self, state, task, repeat, story, name) -> Prediction:
        """The answer of one model to the last question of a story."""
        vocabulary = self.source.vocabularies[task]
        questions = encode([story], vocabulary, name)
        index, slots = np.array([len(questions) - 1]), self.data.slots[task]
        batch = questions.batch(index, slots, memory=self.config.data.memory)
        member = self.data.members(task).start + repeat - 1
        params, linear = select(state, slice(member, member + 1))
        logits, record = self.models.answer(params, linear, batch)
        return question_answers.predicted(
            logits, record, vocabulary, story, linear=bool(linear[0])
        )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the weight of each statement in each hop; see `Task`."""
        return question_answers.draw(prediction, title, path)


def _errors(outputs: Outputs) -> np.ndarray:
    """Errors [R] in per cent."""
    return 100 - 100 * outputs.correct.mean(1)
