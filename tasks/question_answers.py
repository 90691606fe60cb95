"""Answers to questions, as predictions, tables and figures.

Axes: R repeats of a model; K hops; N memory slots; W vocabulary.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

import storage
from data.babi.encoding import Vocabulary
from data.babi.story import Line
from figures import charts
from figures.attention import attention_map
from figures.heatmaps import attention_heatmaps
from models.records import AttentionRecord
from training.task import Prediction


def predicted(
    logits: jax.Array,
    record: AttentionRecord,
    vocabulary: Vocabulary,
    story: Sequence[Line],
) -> Prediction:
    """Returns the answer of the first repeat to the question that ends a story.

    Args:
        logits: [R, 1, W].
        record: attention, with weights [R, 1, 1, K, N].
        vocabulary: the words of the answers.
        story: statements and questions.

    Returns:
        The answer; its score is the log-probability, in nats.
    """
    logits, record = jax.tree.map(lambda x: np.asarray(x[0]), (logits, record))
    hops, slots = record.weights.shape[-2:]
    statements = [_label(line.text) for line in story if not line.answer]
    best = int(logits[0].argmax())
    names = [f"hop {k}" for k in range(1, hops + 1)]
    return Prediction(
        vocabulary.word(best),
        float(jax.nn.log_softmax(logits[0])[best]),
        (attention_map(record, names, statements[-slots:]),),
        details=story[-1].text,
    )


def _label(text: str) -> str:
    """A statement shortened to 20 characters: its beginning and its end."""
    text = text.removesuffix(".").replace(" the ", " ")
    return text if len(text) <= 20 else f"{text[:9]}…{text[-10:]}"


def draw(prediction: Prediction, title: str, path: Path) -> Path:
    """Draws the weight of each statement in each hop.

    Args:
        prediction: a result of `predicted`.
        title: beginning of the title, which ends in the question and its answer.
        path: the file.
    """
    (weights,) = prediction.attention
    return attention_heatmaps(
        weights.weights.transpose(0, 2, 1),
        rows=weights.keys,
        columns=weights.queries,
        title=f"{title}: {prediction.details} {prediction.text}",
        path=path,
        panels=[""],
        row_title="",
        column_title="",
    )


def draw_errors(errors: Mapping[int, np.ndarray], title: str, path: Path) -> Path:
    """Draws the mean error of each task, from errors [R] in per cent by task."""
    heights = {str(task): float(each.mean()) for task, each in errors.items()}
    names = {"axis_title": "task", "value_title": "% wrong"}
    return charts.bars(heights, title, path, **names)


def write(
    errors: Mapping[int, np.ndarray], hits: Mapping[int, np.ndarray], path: Path
) -> Path:
    """Writes errors and attention on facts.

    Args:
        errors: by task, errors [R] in per cent.
        hits: by task, how often [R, K] the maximum weight is on a fact, in per cent.
        path: the file.
    """
    rows = [
        (task, repeat, f"{error:.1f}", *(f"{x:.1f}" for x in hits[task][repeat]))
        for task in errors
        for repeat, error in enumerate(errors[task])
    ]
    hops = next(iter(hits.values())).shape[1]
    names = (f"fact_{k}" for k in range(1, hops + 1))
    return storage.write_tsv(path, ("task", "repeat", "error", *names), rows)
