"""The adding and the multiplication problem of Hochreiter and Schmidhuber (1997).

A sequence has two numbers a step: one at random, and a marker that is 1 at two steps,
-1 at the first and the last one, and 0 elsewhere. Asked for is a function of the two
marked numbers X1 and X2.

| operation | numbers | target | its variance |
|---|---|---|---|
| add | U[-1, 1] | 1/2 + (X1 + X2) / 4 | 1/24 |
| multiply | U[0, 1] | X1 X2 | 7/144 |

One marked step is drawn from 1..9, the other one from the rest of 1..length / 2 - 2,
counted from 0. The two protocols are those of Raffel and Ellis (2015):

*   fixed: lengths from T0 up to, but without, 1.1 T0, padded with zeros to 1.1 T0. No
    mask says where the padding begins; the marker of the last step does;
*   variable: lengths from `min_length` to `length`, all equally probable.

A batch is a dict of float32 `inputs` [B, T, 2] and `target` [B], and, of the variable
protocol, bool `mask` [B, T], False at padding that is to have no effect.

Differs from the paper: the other marked step is any of those left with the same
probability, where the authors' program takes the next one when it draws the first
again; the lengths of a variable batch are not all the same, but from the same one of
`buckets` parts of their range, which takes as many shapes of arrays.

Axes: B sequences; T steps.
"""

import functools
import math

import numpy as np

from data import bucketing
from data.endless import Batch
from data.splits import held_out_rng
from errors import UserError

OPERATIONS = ("add", "multiply")
PROTOCOLS = ("fixed", "variable")
SHORTEST = 22  # the length from which the second marked step has all of 1..9 to be in
_LENGTHS = 100  # of the variable protocol's test, the paper's
_EACH = 10  # sequences of each of them
SEQUENCES = _LENGTHS * _EACH  # of a split


def sequences(
    operation: str, rng: np.random.Generator, lengths: np.ndarray, width: int
) -> Batch:
    """Draws sequences.

    Args:
        operation: one of `OPERATIONS`.
        rng: what to draw from.
        lengths: [B] int in `SHORTEST`..width.
        width: T.

    Returns:
        A batch without a mask.
    """
    rows = np.arange(len(lengths))
    numbers = rng.random((len(lengths), width), np.float32)
    if operation == "add":
        numbers = 2 * numbers - 1
    numbers *= np.arange(width) < lengths[:, None]
    first = rng.integers(1, 10, len(lengths))
    second = rng.integers(1, lengths // 2 - 2)
    second += second >= first  # any but the first, each as probable
    markers = np.zeros_like(numbers)
    markers[rows, 0] = markers[rows, lengths - 1] = -1
    markers[rows, first] = markers[rows, second] = 1
    one, other = numbers[rows, first], numbers[rows, second]
    target = 0.5 + (one + other) / 4 if operation == "add" else one * other
    return {"inputs": np.stack([numbers, markers], -1), "target": target}


def exact(
    operation: str, rng: np.random.Generator, lengths: np.ndarray, width: int
) -> Batch:
    """Draws `sequences`, with a mask without which their padding would have a part."""
    mask = np.arange(width) < lengths[:, None]
    return sequences(operation, rng, lengths, width) | {"mask": mask}


def batches(
    operation: str,
    protocol: str,
    *,
    length: int,
    min_length: int,
    buckets: int,
    batch_size: int,
    seed: int,
) -> bucketing.Batches:
    """Returns endless training batches; see `data.bucketing.Batches`.

    Args:
        operation: one of `OPERATIONS`.
        protocol: one of `PROTOCOLS`.
        length: T0; the longest of the variable protocol.
        min_length: of the variable protocol.
        buckets: of the variable protocol.
        batch_size: B.
        seed: of what is drawn.

    Raises:
        UserError: for a number out of its range.
    """
    if protocol == "fixed":
        width = padded(length)
        return bucketing.Batches(
            lambda rng, lengths, _: sequences(operation, rng, lengths, width),
            min_size=length,
            max_size=width - 1,
            buckets=1,
            batch_size=batch_size,
            seed=seed,
        )
    return bucketing.Batches(
        functools.partial(exact, operation),
        min_size=min_length,
        max_size=length,
        buckets=buckets,
        batch_size=batch_size,
        seed=seed,
    )


def held_out(
    operation: str, protocol: str, split: str, *, length: int, min_length: int
) -> Batch:
    """The 1000 sequences of a split: always the same, and never those of training.

    Those of the variable protocol are of 100 lengths, evenly spaced, 10 of each.

    Args:
        operation: one of `OPERATIONS`.
        protocol: one of `PROTOCOLS`.
        split: "validation" or "test".
        length: T0; the longest of the variable protocol.
        min_length: of the variable protocol.

    Raises:
        UserError: for another split.
    """
    if protocol == "fixed":
        return held_out_at(operation, protocol, split, length)
    rng = _held_out_rng(operation, protocol, split, min_length, length)
    lengths = np.linspace(min_length, length, _LENGTHS).astype(int).repeat(_EACH)
    return exact(operation, rng, lengths, length)


def held_out_at(operation: str, protocol: str, split: str, length: int) -> Batch:
    """The same for one length: T0 of the fixed protocol, else without any padding."""
    rng = _held_out_rng(operation, protocol, split, length)
    if protocol == "fixed":
        lengths = rng.integers(length, padded(length), SEQUENCES)
        return sequences(operation, rng, lengths, padded(length))
    return sequences(operation, rng, np.full(SEQUENCES, length), length)


def padded(length: int) -> int:
    """1.1 T0, rounded up: the width of the fixed protocol."""
    return -(-11 * length // 10)


def training_lengths(protocol: str, length: int, min_length: int) -> tuple[int, int]:
    """Returns the minimum and maximum length in training; see `batches`."""
    return (length, padded(length) - 1) if protocol == "fixed" else (min_length, length)


def parse(text: str, name: str) -> np.ndarray:
    """Reads a sequence as it is typed: "NUMBER,MARKER NUMBER,MARKER ...".

    Args:
        text: of the sequence.
        name: of the input, in errors, such as "line 3".

    Returns:
        float32 [T, 2].

    Raises:
        UserError: for text that is no sequence with two marked numbers.
    """
    try:
        steps = [[float(x) for x in step.split(",")] for step in text.split()]
        sequence = np.array(steps, np.float32)
    except ValueError:
        sequence = np.empty(0)
    if sequence.ndim != 2 or sequence.shape[1] != 2 or not np.isfinite(sequence).all():
        raise UserError(
            f"{name} is {text.strip()[:40]!r}: must be steps NUMBER,MARKER with spaces "
            "between them"
        )
    marked = (sequence[:, 1] == 1).sum()
    if marked != 2:
        raise UserError(f"{name} marks {marked} steps with 1: must be 2")
    return sequence


def padded_batch(protocol: str, sequence: np.ndarray, length: int) -> Batch:
    """A sequence of any length as a batch whose width is a power of two.

    In the fixed protocol a sequence that is shorter than those of training has zeros
    behind it as there, which the mask leaves in.

    Args:
        protocol: one of `PROTOCOLS`.
        sequence: [T, 2].
        length: T0; the longest of the variable protocol.

    Returns:
        `inputs` [1, T', 2] and bool `mask` [1, T'].
    """
    steps = max(len(sequence), padded(length) if protocol == "fixed" else 0)
    width = 2 ** math.ceil(math.log2(steps))  # few shapes to compile for
    inputs = np.pad(sequence, [(0, width - len(sequence)), (0, 0)])
    return {"inputs": inputs[None], "mask": np.arange(width)[None] < steps}


def _held_out_rng(operation, protocol, split, *lengths) -> np.random.Generator:
    kind = OPERATIONS.index(operation), PROTOCOLS.index(protocol)
    return held_out_rng(split, *kind, *lengths)
