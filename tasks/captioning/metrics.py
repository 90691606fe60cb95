"""Metrics of captions: BLEU, chrF, and attention to named objects.

Xu et al. (2015), section 5, report BLEU-1 to BLEU-4 without a brevity penalty;
sacreBLEU applies one. The metrics of composed scenes are not from the paper.

Axes: N captions; T words of a caption; I, J rows and columns of an attention map.
"""

from collections.abc import Sequence

import numpy as np

from tasks.captioning.captions import Captioned, plain
from tasks.captioning.scenes import Mention, Scene, mentions
from tasks.common.text_metrics import CorpusScores, corpus_scores

_ORDERS = (4, 1, 2, 3)  # maximum n-gram orders of BLEU


def split_scores(
    examples: Sequence[Captioned],
    captions: Sequence[Sequence[str]],
    maps: Sequence[np.ndarray | None],
) -> CorpusScores:
    """Metrics of a split: `caption_scores`, and `scene_scores` for composed scenes."""
    references = [[plain(text) for text in example.captions] for example in examples]
    scores, signatures = caption_scores([" ".join(c) for c in captions], references)
    if scenes := [x for x in examples if isinstance(x, Scene)]:
        scores |= scene_scores(scenes, captions, maps)
    return CorpusScores(scores, signatures)


def caption_scores(
    captions: Sequence[str], references: Sequence[Sequence[str]]
) -> CorpusScores:
    """BLEU-1 to BLEU-4 and chrF of captions, as `bleu_1`, ..., `bleu_4` and `chrf`.

    Args:
        captions: N texts, their words separated by spaces.
        references: reference captions of each image, normalised in the same way.
    """
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.metrics.base import Metric

    metrics: dict[str, Metric] = {
        f"bleu_{n}": BLEU(max_ngram_order=n, tokenize="none") for n in _ORDERS
    }
    metrics["chrf"] = CHRF()
    return corpus_scores(metrics, captions, references)


def scene_scores(
    scenes: Sequence[Scene],
    captions: Sequence[Sequence[str]],
    maps: Sequence[np.ndarray | None],
) -> dict[str, float]:
    """Metrics of objects, cells and attention in captions of scenes, in per cent.

    Args:
        scenes: N scenes.
        captions: N captions of T words each.
        maps: attention weights [T, I, J] at the words of each caption; None for a model
            without attention.

    Returns:
        `objects`: share of objects that their captions name. `exact`: share of captions
        that name all objects and nothing else, each in its cell. `pointing`: mean over
        named objects of the share of the name's words whose maximum weight lies in the
        object's box. `chance`: mean share of the image that such a box covers. The last
        two are absent without maps, or if no object is named.
    """
    named = exact = objects = 0
    hits, areas = [], []
    for scene, words, weights in zip(scenes, captions, maps, strict=True):
        mentioned = mentions(words)
        names = [plain(name) for name in scene.names]
        objects += len(names)
        named += len(set(names) & {mention.name for mention in mentioned})
        truth = sorted(zip(names, scene.cells, strict=True))
        exact += sorted((mention.name, mention.cell) for mention in mentioned) == truth
        if weights is None:
            continue
        for mention, box in mentioned_boxes(scene, mentioned):
            box = box / len(scene.image)
            hits.append(pointing_share(weights[mention.first : mention.last], box))
            areas.append((box[2] - box[0]) * (box[3] - box[1]))
    scores = {"objects": 100 * named / objects, "exact": 100 * exact / len(scenes)}
    if hits:
        scores["pointing"] = 100 * float(np.mean(hits))
        scores["chance"] = 100 * float(np.mean(areas))
    return scores


def mentioned_boxes(
    scene: Scene, mentioned: Sequence[Mention]
) -> list[tuple[Mention, np.ndarray]]:
    """Mentions of objects that are in a scene, each with its box [4] in pixels."""
    names = [plain(name) for name in scene.names]
    return [
        (mention, scene.boxes[names.index(mention.name)])
        for mention in mentioned
        if mention.name in names
    ]


def word_boxes(example: Captioned, words: Sequence[str]) -> list[np.ndarray | None]:
    """Box [4] in pixels of the object that each of T words names, or None.

    Only composed scenes have boxes.
    """
    boxes: list[np.ndarray | None] = [None] * len(words)
    if isinstance(example, Scene):
        for mention, box in mentioned_boxes(example, mentions(words)):
            boxes[mention.first : mention.last] = [box] * (mention.last - mention.first)
    return boxes


def pointing_share(maps: np.ndarray, box: np.ndarray) -> float:
    """Share of maps [T, I, J] whose position of maximum weight has its centre in a box.

    `box` [4]: top, left, bottom and right edge, as shares of the image's sides.
    """
    _, rows, columns = maps.shape
    y, x = np.divmod(maps.reshape(len(maps), -1).argmax(-1), columns)
    y, x = (y + 0.5) / rows, (x + 0.5) / columns
    return float(np.mean((box[0] <= y) & (y < box[2]) & (box[1] <= x) & (x < box[3])))
