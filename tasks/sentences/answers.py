"""Labels of sentences and pairs as predictions, and their figures.

Axes: B batch; S, T tokens.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from base.records import AttentionRecord
from figures import charts
from figures.attention import AttentionMap, attention_map
from figures.heatmaps import attention_heatmaps
from training.task import Prediction


def predicted(
    logits: np.ndarray | jax.Array,
    records: Sequence[AttentionRecord],
    labels: Sequence[str],
    texts: Sequence[str],
    length: int,
) -> Prediction:
    """Returns the most probable label of a sentence or pair, with its attention.

    Args:
        logits: [labels].
        records: the model's attention, with B = 1.
        labels: names of the labels.
        texts: the sentence, or both sentences of a pair.
        length: maximum number of words that the model reads.
    """
    best = int(logits.argmax())
    words = [text.split()[:length] or ["</s>"] for text in texts]
    return Prediction(
        labels[best],
        float(jax.nn.log_softmax(logits)[best]),
        tuple(_map(record, words) for record in records),
        details=" / ".join(texts),
    )


def _map(record: AttentionRecord, words: Sequence[Sequence[str]]) -> AttentionMap:
    """Attention map of the first example; "intra" is that of the last text read."""
    if record.kind == "cross":
        return attention_map(record, words[1], words[0])
    length = record.weights.shape[2]
    return attention_map(record, words[-1][:length], words[-1][:length])


def draw(prediction: Prediction, title: str, path: Path) -> Path:
    """Draws the attention of a prediction: between the texts, or within one."""
    kinds = [each.name for each in prediction.attention]
    kind = "cross" if "cross" in kinds else "intra"
    maps = [each for each in prediction.attention if each.name == kind]
    return attention_heatmaps(
        maps[-1].weights,
        rows=maps[-1].queries,
        columns=maps[-1].keys,
        title=f"{title}: {prediction.text}",
        path=path,
        panels=[""],
        row_title="second text" if kind == "cross" else "word being read",
        column_title="first text" if kind == "cross" else "attended word",
    )


def draw_scores(
    scores: Mapping[str, float], labels: Sequence[str], title: str, path: Path
) -> Path:
    """Draws the accuracy of each label that occurs."""
    heights = {
        label: scores[f"accuracy_{label}"]
        for label in labels
        if f"accuracy_{label}" in scores
    }
    names = {"axis_title": "label", "value_title": "% correct"}
    return charts.bars(heights, title, path, maximum=100, **names)
