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
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from base.errors import FieldError
from base.fields import Fields, Files, unread
from base.options import Options
from base.ranges import BATCH, COUNT, EXAMPLES, FRACTION, SIZE, WEIGHT, Range
from figures import charts
from figures.attention import AttentionMap, attention_map
from figures.fonts import MAX_LABEL
from tasks.common.batches import EndlessBatches
from tasks.questions import metrics as answers
from tasks.questions.babi import sources, text
from tasks.questions.babi.encoding import Questions, encode
from tasks.questions.babi.sources import Source
from tasks.questions.babi.text import Line
from tasks.questions.models import (
    LinearStart,
    Outputs,
    QuestionData,
    QuestionModels,
    select,
)
from training import checks
from training.configuration import ModelConfig
from training.optimizers import make_optimizer
from training.state import Scores, TrainState
from training.task import Evaluation, Prediction, Task

_TASK = Range(1, 20, whole=True)
_REPEATS = Range(1, 1000, whole=True)
_FIGURES = 3  # questions of each task in a figure folder
_FACT, _EMPTY = "• ", "(empty slots)"


class QuestionOptions(Options):
    """Flags of predict.py for question answering."""

    # Task whose model answers; the first by default.
    task: Annotated[int | None, _TASK] = None
    # Which of the config.data.repeats models answers.
    repeat: Annotated[int, _REPEATS] = 1


class TaskQuestions(NamedTuple):
    """Questions of a task."""

    task: int
    questions: Questions


class Story(NamedTuple):
    """A story that ends in a question."""

    task: int  # number of the task whose models answer
    repeat: int  # number of the model that answers, from 1
    lines: Sequence[Line]  # statements and questions


class QuestionFields(Fields):
    """`config.data`: stories."""

    # Generated stories, or your `files`.
    source: Literal["generated", "files"] = "generated"
    # Numbers of the bAbI tasks to learn.
    tasks: Annotated[tuple[int, ...], _TASK.each()] = tuple(range(1, 21))
    # "single" for a model per task, "joint" for one model of all tasks.
    training: Literal["single", "joint"] = "single"
    # Number of questions of each task, for training and validation; 1,000 or
    # 10,000 in the paper.
    questions: Annotated[int, dataclasses.replace(EXAMPLES, min=10)] = 1000
    # Number of models trained for each task; 10 in the paper.
    repeats: Annotated[int, _REPEATS] = 1
    # Maximum number of statements in the memory, the last ones of a story.
    memory: Annotated[int, SIZE] = 50
    # Maximum share of time indices that training skips at random.
    time_noise: Annotated[float, FRACTION] = 0.1
    # Questions per batch.
    batch_size: Annotated[int, BATCH] = 32
    files: Files = Files()

    def __post_init__(self):
        if self.source != "files":
            unread("files", self.files, "config.data.source=files")
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            accepted = "a list of at least one task, without repeats"
            raise FieldError("tasks", self.tasks, accepted)


class QuestionLoss(Fields):
    """`config.loss`."""

    # Maximum number of first steps without a softmax; the exact number in the authors'
    # code.
    linear_steps: Annotated[int, COUNT] = 0
    # Weight of the loss that trains each hop on its supporting fact.
    supervision: Annotated[float, WEIGHT] = 0.0


class QuestionConfig(ModelConfig):
    """The config of question answering."""

    data: QuestionFields = QuestionFields()
    loss: QuestionLoss = QuestionLoss()


class QuestionAnswering(Task):
    """Question answering; see the module docstring."""

    metric = ("error", "min")
    Config = QuestionConfig
    Options = QuestionOptions
    table = "tasks", ("task", "repeat", "error", *(f"fact_{k}" for k in range(1, 21)))

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

    def __init__(self, config: ConfigDict, assets: Source):
        self.config, self.source = config, assets
        self.data = QuestionData(config, assets)
        self.model = checks.build_model(
            config,
            vocab_size=assets.vocab_size,
            memory=config.data.memory,
        )
        supervision = config.loss.supervision
        self.models = QuestionModels(self.model, self.data, supervision)
        self.objective = LinearStart(
            self.models.init,
            self.models.loss,
            make_optimizer(config),
            models=self.models.count,
            linear_steps=config.loss.linear_steps,
            validation_losses=self.validation_losses,
        )

    def train_data(self) -> EndlessBatches:
        """Returns the training batches; see `QuestionData.batches`."""
        return self.data.batches()

    def validation_losses(self, state: TrainState) -> np.ndarray:
        """Returns the mean validation loss [P] of each model."""
        groups = self.data.questions("validation").items()
        outputs = [self.answers(state, TaskQuestions(*group)) for group in groups]
        losses = [each.losses.mean(1) for each in outputs]
        return np.mean(losses, 0) if self.data.joint else np.concatenate(losses)

    def examples(self, split: str, *, full: bool = True) -> dict[str, TaskQuestions]:
        """Returns the questions of each task, and those of training; see `Task`."""
        groups = {}
        for part in (split, "train")[: 1 + full]:
            for task, questions in self.data.questions(part).items():
                groups[f"{part}_{task}"] = TaskQuestions(task, questions)
        return groups

    def answers(
        self,
        state: TrainState,
        examples: TaskQuestions | Sequence[Story],
        options: Any = None,
        *,
        attention: bool = False,
    ) -> Outputs | list[tuple]:
        """Returns the outputs of all models of a task, or of one model for stories."""
        if isinstance(examples, TaskQuestions):
            return self.models.outputs(state, *examples)
        return [self._answer(state, story) for story in examples]

    def _encode(self, story: Story) -> Questions:
        vocabulary = self.source.vocabularies[story.task]
        return encode([story.lines], vocabulary, "the story")

    def _answer(self, state, story: Story) -> tuple[Any, Any, bool]:
        """Logits, attention, and whether the model is in its linear start."""
        questions = self._encode(story)
        index, slots = np.array([len(questions) - 1]), self.data.slots[story.task]
        batch = questions.batch(index, slots, memory=self.config.data.memory)
        member = self.data.members(story.task).start + story.repeat - 1
        params, linear = select(state, slice(member, member + 1))
        return *self.models.detailed(params, linear, batch), bool(linear[0])

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns scores in per cent; see `Task`.

        A full evaluation has those of `tasks.questions.metrics.summary`;
        `training_error`, the mean error on the training questions; `fact_K`, how often
        the maximum weight of hop K is on a supporting fact, the mean over tasks and
        repeats. During training: the mean `error`, and how many models are `linear`.
        """
        errors, split = self._errors(evaluation, evaluation.split), evaluation.split
        if evaluation.options is None:
            error = float(np.mean([each.mean() for each in errors.values()]))
            return {"error": error, "linear": float(state.extra["linear"].sum())}
        training = self._errors(evaluation, "train")
        scores = answers.summary(errors, training)
        scores["training_error"] = float(np.mean(list(training.values())))
        hits = self._hits(evaluation, split).values()
        hops = np.nanmean([x.mean(0) for x in hits], 0)
        return scores | {f"fact_{k}": float(x) for k, x in enumerate(hops, 1)}

    def _errors(self, evaluation: Evaluation, part: str) -> dict[int, np.ndarray]:
        """Errors [R] in per cent of each task."""
        groups = evaluation.answers
        correct = {n: groups[f"{part}_{n}"].correct.mean(1) for n in self.data.tasks}
        return {task: 100 - 100 * each for task, each in correct.items()}

    def _hits(self, evaluation: Evaluation, part: str) -> dict[int, np.ndarray]:
        """Frequency [R, K] of the maximum weight on a fact, in per cent, by task."""
        hits = {}
        for task in self.data.tasks:
            group, slots = f"{part}_{task}", self.data.slots[task]
            _, questions = evaluation.examples[group]
            index = np.arange(len(questions))
            facts = questions.batch(index, slots, memory=slots)["facts"]
            top = evaluation.answers[group].top
            hits[task] = answers.attention_on_facts(top, facts)
        return hits

    def rows(self, evaluation: Evaluation) -> list[tuple]:
        """Returns error and attention on facts of each task and repeat."""
        errors = self._errors(evaluation, evaluation.split)
        hits = self._hits(evaluation, evaluation.split)
        return [
            (task, repeat, f"{error:.1f}", *(f"{x:.1f}" for x in hits[task][repeat]))
            for task in errors
            for repeat, error in enumerate(errors[task])
        ]

    def picked(self, split: str, count: int) -> dict[str, Story]:
        """Returns the first stories of each task, up to their last question."""
        stories, each = {}, max(count // len(self.source.stories), 1)
        for task, lines_of_stories in self.source.of_split(split).items():
            name = "own_stories" if task == sources.OWN_STORIES else f"task_{task}"
            for number, lines in enumerate(lines_of_stories[:each], 1):
                last = max(n for n, line in enumerate(lines, 1) if line.answer)
                stories[f"{name}_{number}"] = Story(task, 1, lines[:last])
        return stories

    def drawn(self, split: str) -> dict[str, Story]:
        """Returns the first three stories of each task."""
        return self.picked(split, _FIGURES * len(self.source.stories))

    def check_options(self, options: QuestionOptions) -> None:
        """Checks the task and the repeat; see `Task`."""
        tasks, repeats = self.data.tasks, self.config.data.repeats
        if options.task and options.task not in tasks:
            raise FieldError(
                "task", options.task, f"one of {', '.join(map(str, tasks))}"
            )
        if options.repeat > repeats:
            raise FieldError("repeat", options.repeat, f"at most {repeats}")

    def parse(self, line: str, options: QuestionOptions) -> Story:
        """Returns a story and a question, in the format of `babi.text.parse`."""
        task = options.task or self.data.tasks[0]
        story = Story(task, options.repeat, text.parse(line))
        self._encode(story)  # finds unknown words
        return story

    def show(self, example: Story, answer: tuple) -> Prediction:
        """Returns the answer, and its log-probability in nats.

        The attention has a key for each statement in memory and, unless their weight is
        0, for the empty slots.
        """
        logits, record, linear = answer
        logits, record = jax.tree.map(lambda x: np.asarray(x[0]), (logits, record))
        vocabulary = self.source.vocabularies[example.task]
        hops, slots = record.weights.shape[-2:]
        question, best = example.lines[-1], int(logits[0].argmax())
        statements = [
            _label(line.text, _FACT * (number in question.support))
            for number, line in enumerate(example.lines, 1)
            if not line.answer
        ][-slots:]
        names = [f"hop {k}" + " (scores)" * linear for k in range(1, hops + 1)]
        empty = record.weights[0, :, :, len(statements) :].sum(-1)
        has_empty = not linear and bool(empty.any())
        keys = statements + [_EMPTY] * has_empty
        maps = attention_map(record, names, keys, ("", "statement"))
        if has_empty:
            maps = _with_last(maps, empty)._replace(uniform=0)
        if any(x.startswith(_FACT) for x in statements):
            maps = maps._replace(note=f"{_FACT}supporting fact.")
        word = vocabulary.word(best)
        is_known = question.answer in (word, "?")
        correct = "" if is_known else f" (correct: {question.answer})"
        return Prediction(
            word,
            float(jax.nn.log_softmax(logits[0])[best]),
            (maps,),
            caption=f"{question.text} Answer: {word}{correct}",
            source=question.text,
        )

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the mean error of each task."""
        if not evaluation.scores:
            return []
        errors, split = self._errors(evaluation, evaluation.split), evaluation.split
        heights = {str(task): float(each.mean()) for task, each in errors.items()}
        path, title = folder / f"errors_{split}.png", f"Error by task ({split} split)"
        names = {"axis_title": "task", "value_title": "% wrong"}
        return [charts.bars(heights, title, path, **names)]


def _with_last(maps: AttentionMap, weights: np.ndarray) -> AttentionMap:
    """Attention whose last key has the weights [1, K] of several keys."""
    new, details, last = maps.weights.copy(), maps.details, maps.weights[..., -1]
    new[..., -1] = weights
    if details is not None:  # in a softmax, the exponentials of their scores add up
        bias, soft = details.bias.copy(), (weights > 0) & (last > 0)
        ratio = np.divide(weights, last, out=np.ones_like(last), where=soft)
        bias[..., -1] += np.log(ratio).T
        details = details.replace(bias=bias)
    return maps._replace(weights=new, details=details)


def _label(text: str, mark: str) -> str:
    """A statement with its mark; of a long one, the beginning and the end."""
    room = MAX_LABEL - len(mark)
    long = len(text) > room
    return mark + (f"{text[: room - 17]}…{text[-16:]}" if long else text)
