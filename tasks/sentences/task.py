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

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from base.errors import UserError
from base.fields import Fields, Files, unread
from base.ranges import BATCH, SIZE, VOCABULARY, Choice, Range
from base.records import DETAILS, AttentionRecord, records_of
from figures import charts
from figures.attention import attention_map
from tasks.common.batches import EndlessBatches
from tasks.common.objectives import supervised
from tasks.sentences import data as sentences
from tasks.sentences.data import Example, Sentences
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Task


class SentenceData(Fields):
    """`config.data`: labelled sentences or pairs."""

    # Source of the labelled sentences or pairs.
    source: Annotated[str, Choice(sentences.SOURCES)] = "reviews"
    files: Files = Files()
    # Maximum number of training examples; the reviews have 8,072.
    examples: Annotated[int, Range(1, 10**7, whole=True)] = 10_000
    # Maximum size of the vocabulary, in words.
    vocab_size: Annotated[int, VOCABULARY] = 5000
    # Maximum number of words of a text; longer texts are truncated.
    max_length: Annotated[int, SIZE] = 48
    batch_size: Annotated[int, BATCH] = 32  # sentences or pairs per batch

    def __post_init__(self):
        if self.source != "files":
            unread("files", self.files, "config.data.source=files")


class SentenceConfig(ModelConfig):
    """The config of a sentence classifier."""

    data: SentenceData = SentenceData()
    evaluation: EvaluationConfig = EvaluationConfig(checkpoint="best")


class SentenceClassification(Task):
    """Classification of sentences or pairs; see the module docstring."""

    metric = ("accuracy", "max")
    Config = SentenceConfig
    table = "answers", ("answer", "label", "first", "second")
    figure_name = "example"

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

    def __init__(self, config: ConfigDict, assets: Sentences):
        self.config, self.sentences = config, assets
        self.model = checks.build_model(
            config,
            vocab_size=assets.words.size,
            classes=len(assets.labels),
            memory=config.data.max_length,
        )
        fields = ("first", "second")[: 1 + assets.paired]
        blank = dict.fromkeys(fields, jnp.ones((1, 2), jnp.int32))
        self.objective = supervised(self, blank)

    def train_data(self) -> EndlessBatches:
        """Returns the training batches; see `tasks.sentences.data`."""
        data = self.config.data
        return sentences.batches(
            self.sentences,
            data.max_length,
            batch_size=data.batch_size,
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

    def examples(self, split: str, *, full: bool = True) -> sentences.Splits:
        """Returns labelled texts; see `Task`."""
        return {split: self.sentences.splits[split]}

    def batch(self, examples: Sequence[Example]) -> dict[str, np.ndarray]:
        """Returns texts as ids; see `Sentences.encode`."""
        return self.sentences.encode(examples, self.config.data.max_length)

    def outputs(
        self, state: TrainState, batch: Batch, attention: bool
    ) -> tuple[jax.Array, list[AttentionRecord]]:
        """Returns logits [B, classes] and, if requested, the model's attention."""
        logits, sown = self.model.apply(
            {"params": state.params},
            batch,
            train=False,
            mutable=["attention", DETAILS] if attention else [],
        )
        return logits, records_of(sown, AttentionRecord)

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns accuracies in per cent.

        Scores: `accuracy`; that of each label, `accuracy_LABEL`; in a full evaluation,
        that of a logistic regression on TF-IDF vectors (`tfidf`).
        """
        split, labels = evaluation.split, self.sentences.labels
        answers = evaluation.answers[split].arrays[0].argmax(-1)
        texts = evaluation.examples[split]
        label = np.array([labels.index(example[0]) for example in texts])
        scores = {"accuracy": 100 * float((answers == label).mean())}
        for number, name in enumerate(labels):
            if (chosen := label == number).any():
                correct = answers[chosen] == number
                scores[f"accuracy_{name}"] = 100 * float(correct.mean())
        if evaluation.options is not None:
            scores["tfidf"] = sentences.tfidf_accuracy(self.sentences, split)
        return scores

    def row(self, number: int, example: Example, answer: Any) -> tuple[str, ...]:
        """Returns the answer, the label and the texts."""
        return self.sentences.labels[answer[0].argmax()], *example

    def parse(self, line: str, options: NoOptions) -> Example:
        """Returns a sentence, or a pair separated by a tab, with any label."""
        texts, count = line.split("\t"), 1 + self.sentences.paired
        if len(texts) != count:
            expected = _texts(count) + " separated by a tab" * (count == 2)
            raise UserError(f"has {_texts(len(texts))}: must be {expected}")
        return self.sentences.labels[0], *map(sentences.normal, texts)

    def show(self, example: Example, answer: Any) -> Prediction:
        """Returns the label and its log-probability, in nats.

        The attention is that between the texts, and that within each text.
        """
        logits, records = answer
        best, length = int(logits.argmax()), self.config.data.max_length
        words = [text.split()[:length] or ["</s>"] for text in example[1:]]
        maps, names = [], ("first text", "second text")
        # Records are sorted by layer, in each layer the first text before the second.
        texts = itertools.cycle(zip(names, words, strict=False))
        for record in records:
            if record.kind == "cross":
                maps.append(attention_map(record, words[1], words[0], names[::-1]))
                continue
            name, text = next(texts)
            text = text[: record.weights.shape[1]]
            each = attention_map(
                record, text, text, ("word being read", "attended word")
            )
            maps.append(each._replace(name=name) if len(words) > 1 else each)
        return Prediction(
            self.sentences.labels[best],
            float(jax.nn.log_softmax(logits)[best]),
            tuple(maps),
            caption=self.sentences.labels[best],
            source=" | ".join(example[1:]),
        )

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the accuracy of each label that occurs."""
        return charts.accuracies(evaluation.scores, "label", evaluation.split, folder)


def _texts(count: int) -> str:
    return {1: "one text", 2: "two texts"}.get(count, f"{count} texts")
