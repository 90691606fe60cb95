"""Accuracy with several annotators, and attention in boxes.

Axes: N questions; K annotators; G glimpses; L regions of an image, row by row; M boxes.
"""

import math

import numpy as np

AGREEING = 3  # annotators who make an answer correct


def consensus(agreeing: np.ndarray) -> np.ndarray:
    """VQA accuracy min(agreeing / 3, 1) [...]: Antol et al. (2015), section 5.

    `agreeing`, int [...], is the number of annotators who gave the answer.
    """
    return np.minimum(agreeing / AGREEING, 1)


def leave_one_out(agreeing: np.ndarray, annotators: int) -> np.ndarray:
    """Mean `consensus` with all annotators but one, as in the official evaluation.

    Args:
        agreeing: int [...], number of annotators who gave the answer.
        annotators: K, at least 2; 10 in the data sets.

    Returns:
        [...] from 0 to 1.
    """
    share = agreeing / annotators  # of the subsets, which lack an agreeing annotator
    without = consensus(np.maximum(agreeing - 1, 0))
    return share * without + (1 - share) * consensus(agreeing)


def accuracy(predicted: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Accuracy of predicted answers: `leave_one_out`, exact for a single annotator.

    Args:
        predicted: int [N], numbers of the answers.
        answers: int [N, K], those of the annotators; below 0 for others.

    Returns:
        [N] from 0 to 1.
    """
    agreeing = (answers == predicted[:, None]).sum(1)
    if answers.shape[1] == 1:
        return agreeing.astype(float)
    return leave_one_out(agreeing, answers.shape[1])


def coverage(boxes: np.ndarray, regions: int, size: int) -> np.ndarray:
    """Share of each region that is inside of boxes.

    Args:
        boxes: int [N, M, 4], top row, left column, bottom row + 1 and right column + 1
            in pixels, without overlap; 0 for no box.
        regions: L, a square.
        size: rows and columns of the image.

    Returns:
        [N, L] from 0 to 1.
    """
    side = math.isqrt(regions)
    edge = np.arange(side + 1) * size / side

    def inside(first: np.ndarray, last: np.ndarray) -> np.ndarray:  # [N, M, side]
        start = np.maximum(first[..., None], edge[:-1])
        return np.maximum(np.minimum(last[..., None], edge[1:]) - start, 0)

    top, left, bottom, right = np.moveaxis(boxes, -1, 0)
    pixels = np.einsum("nmi,nmj->nij", inside(top, bottom), inside(left, right))
    return pixels.reshape(len(boxes), regions) * regions / size**2


def mass_in_boxes(
    weights: np.ndarray, boxes: np.ndarray, size: int
) -> dict[str, float]:
    """Mean attention in the boxes, in per cent, of the questions with a box.

    Args:
        weights: [N, G, L].
        boxes: see `coverage`.
        size: see `coverage`.

    Returns:
        `mass_in_box`, the mean over glimpses; `mass_in_box_G`, that of the G-th;
        `area_of_box`, that of uniform attention. Empty without boxes.
    """
    boxed = boxes.any((1, 2))
    if not boxed.any():
        return {}
    share = coverage(boxes[boxed], weights.shape[-1], size)
    mass = 100 * np.einsum("ngl,nl->ng", weights[boxed], share).mean(0)
    scores = {"mass_in_box": float(mass.mean())}
    scores |= {f"mass_in_box_{g}": float(x) for g, x in enumerate(mass, 1)}
    return scores | {"area_of_box": 100 * float(share.mean())}
