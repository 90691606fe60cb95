"""Metrics of predicted bits: cross-entropy and number of wrong bits.

Axes: B sequences; T steps; O bits of a step.
"""

import numpy as np


def bits_per_sequence(nats: float, sequences: int) -> float:
    """Mean cross-entropy of a sequence in bits: Graves et al. (2014), figure 3.

    Args:
        nats: cross-entropy, summed over all sequences.
        sequences: number of sequences.
    """
    return nats / np.log(2) / sequences


def wrong_bits(logits: np.ndarray, targets: np.ndarray, mask: np.ndarray) -> int:
    """Number of wrong bits, where the mask is true.

    Args:
        logits: [B, T, O], above 0 for a one.
        targets: [B, T, O], 0 or 1.
        mask: [B, T], true where an answer is expected.
    """
    wrong = (np.asarray(logits) > 0) != (targets > 0)
    return int((wrong & mask[..., None]).sum())
