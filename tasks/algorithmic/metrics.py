"""Metrics of predicted bits: cross-entropy and number of wrong bits.

Axes: B sequences; T steps; O bits per step.
"""

import numpy as np


def bits_per_sequence(nats: float, sequences: int) -> float:
    """Mean cross-entropy per sequence in bits: Graves et al. (2014), figure 3.

    Args:
        nats: cross-entropy, summed over all sequences.
        sequences: number of sequences.
    """
    return nats / np.log(2) / sequences


def wrong_bits(logits: np.ndarray, targets: np.ndarray, mask: np.ndarray) -> int:
    """Number of wrong bits at the output steps, summed over all sequences.

    Args:
        logits: [B, T, O]; a logit above 0 predicts 1.
        targets: [B, T, O], 0 or 1.
        mask: [B, T] bool, True at output steps.
    """
    wrong = (np.asarray(logits) > 0) != (targets > 0)
    return int((wrong & mask[..., None]).sum())
