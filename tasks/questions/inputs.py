"""Questions of question answering: by task for the evaluation, by model for training.

Axes: P models; D distinct statements of a model; J words of a statement.
"""

import functools
from collections.abc import Mapping

import numpy as np
from ml_collections import ConfigDict

from tasks.questions.babi import sources
from tasks.questions.babi.encoding import Batches, Questions, joined, numbered
from tasks.questions.babi.sources import Source

# Training questions of each model, and word ids [P, D, J] of the numbered statements.
Training = Mapping[int, tuple[list[Questions], np.ndarray | None]]


class QuestionData:
    """The questions of a run.

    Attributes:
        tasks: numbers of the tasks.
        joint: whether one model, with its repeats, learns all tasks.
        slots: number of memory slots by task.
        model_slots: number of memory slots of each model [P].
    """

    def __init__(self, config: ConfigDict, source: Source):
        """Counts the slots of each task.

        Args:
            config: the config.
            source: the stories.
        """
        data = self.config = config.data
        self.seed = config.seed
        self.questions = functools.cache(source.questions)  # encoded once
        self.tasks = [sources.OWN_STORIES]
        if data.source == "generated":
            self.tasks = list(data.tasks)
        self.joint = data.training == "joint"
        # Maximum number of statements before a training question.
        slots = [min(x.longest, data.memory) for x in self._by_model()]
        by_task = slots * len(self.tasks) if self.joint else slots
        self.slots = dict(zip(self.tasks, by_task, strict=True))
        self.model_slots = np.repeat(slots, data.repeats).tolist()

    def _by_model(self) -> list[Questions]:
        """The training questions of each model, once for all its repeats."""
        models = list(self.questions("train").values())
        return [joined(models)] if self.joint else models

    def members(self, task: int) -> slice:
        """Returns the range of the models of a task, one for each repeat."""
        repeats = self.config.repeats
        start = 0 if self.joint else self.tasks.index(task) * repeats
        return slice(start, start + repeats)

    def training(self, groups: Mapping[int, np.ndarray]) -> Training:
        """Returns the training questions by number of slots; see `numbered`.

        Args:
            groups: by number of slots, the numbers of the models.
        """
        repeats, models = self.config.repeats, self._by_model()
        return {
            size: numbered(
                [models[n] for n in group[::repeats] // repeats],
                self.config.batch_size * size // 2,  # with more, few are repeated
            )
            for size, group in groups.items()
        }

    def batches(self, training: Training) -> Batches:
        """Returns the training batches; see `tasks.questions.babi.encoding.Batches`."""
        return Batches(
            {size: questions for size, (questions, _) in training.items()},
            repeats=self.config.repeats,
            batch_size=self.config.batch_size,
            memory=self.config.memory,
            noise=self.config.time_noise,
            seed=self.seed,
        )
