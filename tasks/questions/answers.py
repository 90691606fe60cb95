"""Answers to questions, as predictions, tables and figures.

Axes: R repeats of a model; K hops; N memory slots; W vocabulary.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from base import storage
from base.records import AttentionRecord
from figures import charts
from figures.attention import attention_map
from figures.fonts import MAX_LABEL
from figures.heatmaps import attention_heatmaps
from tasks.questions.babi.encoding import Vocabulary
from tasks.questions.babi.story import Line
from training.task import Prediction

_FACT, _EMPTY = "• ", "(empty slots)"


def predicted(
    logits: jax.Array,
    record: AttentionRecord,
    vocabulary: Vocabulary,
    story: Sequence[Line],
    *,
    linear: bool,
) -> Prediction:
    """Returns the answer of a model to the question that ends a story.

    Args:
        logits: [1, 1, W].
        record: attention, with weights [1, 1, 1, K, N].
        vocabulary: the words of the answers.
        story: statements and questions.
        linear: whether the model is in its linear start, in which the weights are the
            scores.

    Returns:
        The answer; its score is the log-probability, in nats. The attention has a key
        for each statement in memory and, unless their weight is 0, for the empty slots.
    """
    logits, record = jax.tree.map(lambda x: np.asarray(x[0]), (logits, record))
    hops, slots = record.weights.shape[-2:]
    question = story[-1]
    statements = [
        _label(line.text, _FACT * (number in question.support))
        for number, line in enumerate(story, 1)
        if not line.answer
    ][-slots:]
    best = int(logits[0].argmax())
    names = [f"hop {k}" + " (scores)" * linear for k in range(1, hops + 1)]
    attention = attention_map(record, names, statements)
    empty = record.weights[0, :, :, len(statements) :].sum(-1, keepdims=True)
    if not linear and empty.any():
        attention = attention._replace(
            weights=np.concatenate([attention.weights, empty], -1),
            keys=[*statements, _EMPTY],
        )
    word = vocabulary.word(best)
    correct = (
        f" (correct: {question.answer})" if question.answer not in (word, "?") else ""
    )
    return Prediction(
        word,
        float(jax.nn.log_softmax(logits[0])[best]),
        (attention,),
        details=f"{question.text} Answer: {word}{correct}",
    )


def _label(text: str, mark: str) -> str:
    """A statement with its mark; of a long one, the beginning and the end."""
    room = MAX_LABEL - len(mark)
    long = len(text) > room
    return mark + (f"{text[: room - 17]}…{text[-16:]}" if long else text)


def draw(prediction: Prediction, title: str, path: Path) -> Path:
    """Draws the weight of each statement in each hop.

    Args:
        prediction: a result of `predicted`.
        title: beginning of the title, which ends in the question, the answer and, if
            that is wrong, the correct one.
        path: the file.
    """
    (weights,) = prediction.attention
    has_facts = any(x.startswith(_FACT) for x in weights.keys)
    return attention_heatmaps(
        weights.weights.transpose(0, 2, 1),
        rows=weights.keys,
        columns=weights.queries,
        title=f"{title}: {prediction.details}",
        path=path,
        panels=[""],
        row_title="statement",
        column_title="",
        uniform=0 if _EMPTY in weights.keys else 1 / len(weights.keys),
        note=f"{_FACT}supporting fact" if has_facts else "",
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
