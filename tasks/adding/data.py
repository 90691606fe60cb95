"""The adding and the multiplication problem of Hochreiter and Schmidhuber (1997).

Each step has two numbers: a random one, and a marker that is 1 at two steps, -1 at the
first and the last step, and 0 elsewhere. The target is a function of the two marked
numbers X1 and X2.

| operation | numbers | target | variance of the target |
|---|---|---|---|
| add | U[-1, 1] | 1/2 + (X1 + X2) / 4 | 1/24 |
| multiply | U[0, 1] | X1 X2 | 7/144 |

With steps counted from 0, one marked step is drawn from 1..9 and the other from the
rest of 1..length / 2 - 2. The protocols of Raffel and Ellis (2015):

*   fixed: lengths in [T0, 1.1 T0), padded with zeros to 1.1 T0. There is no mask; only
    the marker of the last step shows where the padding begins;
*   variable: uniformly distributed lengths from `min_length` to `length`.

A batch is a dict of float32 `inputs` [B, T, 2] and `target` [B]. In the variable
protocol it also has bool `mask` [B, T], False at padding.

Differs from the paper: the second marked step is uniform over the remaining ones, while
the authors' program takes the next step if it draws the first one again; the lengths in
a variable batch are not all equal, but come from one of `buckets` parts of their range,
so that there are only as many array shapes as buckets.

Axes: B batch; T steps.
"""

import math

import numpy as np

from base.errors import FieldError, UserError, parse_number
from tasks.common.batches import ALL, Batch, EndlessBatches, Rows, bucketed
from tasks.common.splits import held_out_rng

OPERATIONS = ("add", "multiply")
PROTOCOLS = ("fixed", "variable")
MIN_LENGTH = 22  # from this length on, each of 1..9 can be the second marked step
_LENGTHS = 100  # number of lengths in a split of the variable protocol, as in the paper
_SEQUENCES_PER_LENGTH = 10
SEQUENCES = _LENGTHS * _SEQUENCES_PER_LENGTH  # number of sequences in a split
TOLERANCE = 0.04  # of a correct estimate, as in Hochreiter and Schmidhuber (1997)


def sequences(
    operation: str,
    rng: np.random.Generator,
    lengths: np.ndarray,
    width: int,
    rows: Rows = ALL,
    *,
    masked: bool = False,
) -> Batch:
    """Draws a batch, or its `rows`.

    Args:
        operation: one of `OPERATIONS`.
        rng: random generator.
        lengths: [B] int in `MIN_LENGTH`..width.
        width: T.
        rows: sequences to return.
        masked: whether the batch has a mask of the padding.
    """
    numbers = rng.random((len(lengths), width), np.float32)[rows]
    first = rng.integers(1, 10, len(lengths))[rows]
    second = rng.integers(1, lengths // 2 - 2)[rows]
    second += second >= first  # uniform over the steps other than the first
    lengths, i = lengths[rows], np.arange(len(numbers))
    if operation == "add":
        numbers = 2 * numbers - 1
    numbers *= np.arange(width) < lengths[:, None]
    markers = np.zeros_like(numbers)
    markers[i, 0] = markers[i, lengths - 1] = -1
    markers[i, first] = markers[i, second] = 1
    x1, x2 = numbers[i, first], numbers[i, second]
    target = 0.5 + (x1 + x2) / 4 if operation == "add" else x1 * x2
    batch = {"inputs": np.stack([numbers, markers], -1), "target": target}
    return batch | ({"mask": np.arange(width) < lengths[:, None]} if masked else {})


def batches(
    operation: str,
    protocol: str,
    *,
    length: int,
    min_length: int,
    buckets: int,
    batch_size: int,
    seed: int,
) -> EndlessBatches:
    """Returns the training batches; see `bucketed`.

    Args:
        operation: one of `OPERATIONS`.
        protocol: one of `PROTOCOLS`.
        length: T0; in the variable protocol, the maximum length.
        min_length: minimum length in the variable protocol.
        buckets: number of buckets in the variable protocol.
        batch_size: B.
        seed: seed of the sequences.
    """
    low, high = training_lengths(protocol, length, min_length)
    masked = protocol == "variable"

    def make(rng, lengths, width, rows):
        width = width if masked else padded_length(length)
        return sequences(operation, rng, lengths, width, rows, masked=masked)

    return bucketed(
        make,
        min_size=low,
        max_size=high,
        buckets=buckets if masked else 1,
        batch_size=batch_size,
        seed=seed,
    )


def held_out(
    operation: str, protocol: str, split: str, *, length: int, min_length: int
) -> Batch:
    """Returns the 1000 sequences of a split, always the same and never in training.

    In the variable protocol there are 10 sequences of each of 100 evenly spaced
    lengths. Arguments as of `batches`.
    """
    if protocol == "fixed":
        return held_out_at(operation, protocol, split, length)
    rng = _held_out_rng(operation, protocol, split, min_length, length)
    lengths = np.linspace(min_length, length, _LENGTHS).astype(int)
    lengths = lengths.repeat(_SEQUENCES_PER_LENGTH)
    return sequences(operation, rng, lengths, length, masked=True)


def held_out_at(operation: str, protocol: str, split: str, length: int) -> Batch:
    """Returns 1000 held-out sequences for one length, without a mask.

    The length is T0; in the variable protocol, that of every sequence.
    """
    rng = _held_out_rng(operation, protocol, split, length)
    if protocol == "fixed":
        lengths = rng.integers(length, padded_length(length), SEQUENCES)
        return sequences(operation, rng, lengths, padded_length(length))
    return sequences(operation, rng, np.full(SEQUENCES, length), length)


def padded_length(length: int) -> int:
    """Returns the width of the fixed protocol: 1.1 T0, rounded up."""
    return -(-11 * length // 10)


def training_lengths(protocol: str, length: int, min_length: int) -> tuple[int, int]:
    """Returns the minimum and maximum length in training; see `batches`."""
    if protocol == "fixed":
        return length, padded_length(length) - 1
    return min_length, length


def accuracy(errors: np.ndarray) -> float:
    """Percentage of estimates [...] with |error| < `TOLERANCE`."""
    return 100 * float((np.abs(errors) < TOLERANCE).mean())


def parse(operation: str, text: str) -> np.ndarray:
    """Parses a typed sequence, "NUMBER,MARKER NUMBER,MARKER ...": float32 [T, 2].

    Raises:
        UserError: if the text is not a sequence of the operation, with numbers in its
            range and the markers of `sequences`.
    """
    words, steps = text.split(), []
    minimum = -1 if operation == "add" else 0
    for number, word in enumerate(words, 1):
        try:
            value, marker = map(parse_number, word.split(","))
        except ValueError:
            accepted = "NUMBER,MARKER, such as 0.3,1"
            raise FieldError(f"step {number}", word[:40], accepted) from None
        place = f"step {number} is {word[:40]!r}"
        if not minimum <= value <= 1:
            raise UserError(f"{place}: its number must be in [{minimum}, 1]")
        markers = (-1,) if number in (1, len(words)) else (0, 1)
        if marker not in markers:
            accepted = " or ".join(map(str, markers))
            steps_of = "first or last" if len(markers) == 1 else "inner"
            raise UserError(
                f"{place}: the marker of {steps_of} steps must be {accepted}"
            )
        steps.append((value, marker))
    sequence = np.array(steps, np.float32)
    marked = (sequence[:, 1] == 1).sum()
    if marked != 2:
        raise UserError(f"{marked} steps have the marker 1: must be 2")
    return sequence


def padded(protocol: str, sequence: np.ndarray, length: int) -> Batch:
    """Returns a sequence [T, 2] padded to a power of two.

    In the fixed protocol, sequences that are shorter than T0 are padded with zeros that
    the mask includes, as in training.

    Returns:
        `inputs` [T', 2] and bool `mask` [T'].
    """
    steps = max(len(sequence), padded_length(length) if protocol == "fixed" else 0)
    width = 2 ** math.ceil(math.log2(steps))  # few shapes to compile for
    inputs = np.pad(sequence, [(0, width - len(sequence)), (0, 0)])
    return {"inputs": inputs, "mask": np.arange(width) < steps}


def _held_out_rng(operation, protocol, split, *lengths) -> np.random.Generator:
    indices = OPERATIONS.index(operation), PROTOCOLS.index(protocol)
    return held_out_rng(split, *indices, *lengths)
