"""Classification of sentences and of pairs of sentences.

`tasks.sentences.data` reads film reviews or a user's sentences, and generates pairs
with exact labels of entailment. The loss is the cross-entropy of the labels. The
evaluation also reports the accuracy of a logistic regression on TF-IDF vectors of the
same texts.

Works with `models.sentences.SentenceClassifier`, and any model with the fields
`vocab_size`, `classes` and `memory` and `model.apply(variables, batch, train=...) ->
logits`, which may sow attention of the kinds "intra" and "cross".

Axes: B batch; S, T tokens.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from base import spread, storage
from base.errors import UserError
from base.ranges import BATCH, SIZE, TEXT, VOCABULARY, Range
from base.records import AttentionRecord, collect
from tasks.common.splits import SPLITS
from tasks.sentences import answers as sentence_answers
from tasks.sentences import data as sentences
from tasks.sentences.data import Example, Sentences
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, Lines, NoOptions, Prediction, Task

_BATCH = 100  # examples evaluated at a time
_FIGURES = 3
_PLACEHOLDER = 3  # labels that are not known yet


class SentenceClassification(Task):
    """Classification of sentences or pairs; see the module docstring."""

    metric = ("accuracy", "max")
    ranges = {
        **checks.SUPERVISED,
        "data.source": TEXT,
        **{f"data.files.{split}": TEXT for split in SPLITS},
        "data.examples": Range(1, 10**7, whole=True),
        "data.vocab_size": VOCABULARY,
        "data.max_length": SIZE,
        "data.batch_size": BATCH,
    }
    arrays = {
        ("data.batch_size", "data.max_length", "model.hidden"): 24,
        ("data.batch_size", "data.max_length", "model.score_hidden"): 4,
    }
    model_fields = {"memory": "data.max_length"}

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks the source; see `Task`."""
        checks.choice("data.source", config.data.source, sentences.SOURCES)
        if config.data.source != "files":
            checks.unread_files(config, "data.files", "data.source=files")

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Sentences:
        """Returns the examples and the vocabulary; see `Task`."""
        data, folder = config.data, workdir / "assets"
        if not training:
            return sentences.load(folder)
        splits = sentences.read(data.source, data.files.to_dict(), data.examples)
        left_out = len(splits["train"]) - data.examples
        if left_out > 0 and jax.process_index() == 0:
            print(
                f"data: {left_out:,} training examples over "
                f"config.data.examples={data.examples} left out",
                file=sys.stderr,
            )
        splits["train"] = splits["train"][: data.examples]
        return sentences.create(splits, folder, vocab_size=data.vocab_size)

    def __init__(
        self,
        config: ConfigDict,
        assets: Sentences | None = None,
        *,
        axis_name: str | None = None,
    ):
        """Builds the model and the objective; see `Task`."""
        self.config, self.sentences = config, assets
        paired = assets.paired if assets else config.data.source == "entailment"
        self.model = checks.build_model(
            config.architecture,
            config.model,
            vocab_size=assets.words.size if assets else config.data.vocab_size,
            classes=len(assets.labels) if assets else _PLACEHOLDER,
            memory=config.data.max_length,
        )
        fields = ("first", "second")[: 1 + paired]
        self.batch = dict.fromkeys(fields, jnp.ones((1, 2), jnp.int32))
        self.answer = jax.jit(self._answer)
        self.objective = Supervised(
            lambda rng: self.model.init(rng, self.batch, train=False)["params"],
            self.loss,
            make_optimizer(config),
            axis_name=axis_name,
        )

    def train_data(self) -> sentences.Batches:
        """Returns the training batches; see `tasks.sentences.data`."""
        data = self.config.data
        return sentences.Batches(
            self.sentences,
            batch_size=data.batch_size,
            length=data.max_length,
            seed=self.config.seed,
        )

    def loss(
        self, params: Any, batch: Batch, rng: jax.Array, state: TrainState
    ) -> LossResult:
        """Returns the cross-entropy of the labels."""
        logits = self.model.apply(
            {"params": params}, batch, train=True, rngs={"dropout": rng}
        )
        label = batch["label"]
        nats = optax.softmax_cross_entropy_with_integer_labels(logits, label)
        count = jnp.asarray(len(label), jnp.float32)
        correct = (logits.argmax(-1) == label).sum(dtype=jnp.float32)
        return nats.sum(), (count, {"training_accuracy": (100 * correct, count)})

    def _answer(self, params, batch):
        """Logits [B, classes] and the model's attention."""
        logits, sown = self.model.apply(
            {"params": params}, batch, train=False, mutable=["attention"]
        )
        return logits, collect(sown, AttentionRecord)

    def _answers(self, state: TrainState, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Answers and labels of a split, as numbers."""
        length = self.config.data.max_length
        batch = self.sentences.encode(self.sentences.examples(split), length)
        label = batch["label"]

        def part(start: int) -> np.ndarray:
            rows = {name: x[start : start + _BATCH] for name, x in batch.items()}
            return np.asarray(self.answer(state.params, rows)[0].argmax(-1))

        parts = spread.each(part, range(0, len(label), _BATCH))
        return np.concatenate(parts), label

    def evaluate(self, state: TrainState, split: str, options: NoOptions) -> Evaluation:
        """Evaluates a split; see `Task`.

        Returns:
            Scores in per cent: `accuracy`, that of each label (`accuracy_LABEL`), and
            that of a logistic regression on TF-IDF vectors (`tfidf`). Outputs: answers
            and labels.
        """
        answers, label = self._answers(state, split)
        scores = _accuracies(answers, label, self.sentences.labels)
        scores["tfidf"] = sentences.tfidf_accuracy(self.sentences, split)
        return Evaluation(split, scores, (answers, label))

    def validate(self, state: TrainState) -> Scores:
        """Returns the validation scores, without the logistic regression."""
        return _accuracies(*self._answers(state, "validation"), self.sentences.labels)

    def tables(self, evaluation: Evaluation, folder: Path) -> list[Path]:
        """Writes the answer to each example; see `Task`."""
        split, labels = evaluation.split, self.sentences.labels
        examples = self.sentences.examples(split)
        rows = [
            (labels[answer], *example)
            for answer, example in zip(evaluation.outputs[0], examples, strict=True)
        ]
        header = "answer", "label", "first", "second"
        path = folder / f"answers_{split}.tsv"
        return [storage.write_tsv(path, header[: len(rows[0])], rows)]

    def can_draw(self) -> bool:
        """Returns whether the model has attention."""
        _, records = jax.eval_shape(self._answer, self._params(), self.batch)
        return bool(records)

    def _params(self) -> Any:
        return jax.eval_shape(self.objective.init, jax.random.key(0)).params

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws accuracies by label, and the attention of examples; see `Task`."""
        split, paths = evaluation.split, []
        if evaluation.scores:
            path = folder / f"accuracy_{split}.png"
            title = f"Accuracy by label ({split} split)"
            scores, labels = evaluation.scores, self.sentences.labels
            paths.append(sentence_answers.draw_scores(scores, labels, title, path))
        if self.can_draw():
            examples = self.sentences.examples(split)[:_FIGURES]
            for number, example in enumerate(examples, 1):
                prediction = self._predict(state, example)
                title = f"{split.capitalize()} example {number}"
                path = folder / f"example_{number}_{split}.png"
                paths.append(self.draw(prediction, title, path))
        return paths

    def predict(
        self, state: TrainState, lines: Lines, options: NoOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Yields the label of each sentence, or pair separated by a tab; see `Task`.

        The score is the log-probability of the label, in nats.
        """
        count = 1 + self.sentences.paired
        parsed = {number: line.split("\t") for number, line in lines.items()}
        for number, texts in parsed.items():
            if len(texts) != count:
                expected = _texts(count) + " separated by a tab" * (count == 2)
                raise UserError(
                    f"line {number} has {_texts(len(texts))}: must be {expected}"
                )
        for texts in parsed.values():
            example = (self.sentences.labels[0], *map(sentences.normal, texts))
            yield self._predict(state, example)

    def _predict(self, state: TrainState, example: Example) -> Prediction:
        length = self.config.data.max_length
        batch = self.sentences.encode([example], length)
        (logits,), records = self.answer(state.params, batch)
        labels, texts = self.sentences.labels, example[1:]
        return sentence_answers.predicted(logits, records, labels, texts, length)

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the attention between the texts, or within one; see `Task`."""
        return sentence_answers.draw(prediction, title, path)


def _texts(count: int) -> str:
    return {1: "one text", 2: "two texts"}.get(count, f"{count} texts")


def _accuracies(
    answers: np.ndarray, label: np.ndarray, names: Sequence[str]
) -> dict[str, float]:
    scores = {"accuracy": 100 * float((answers == label).mean())}
    for number, name in enumerate(names):
        if (chosen := label == number).any():
            correct = answers[chosen] == number
            scores[f"accuracy_{name}"] = 100 * float(correct.mean())
    return scores
