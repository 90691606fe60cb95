"""The tasks of the Neural Turing Machine (Graves et al. 2014, section 4), generated.

| kind | size: number of | sequence | target | I, O |
|---|---|---|---|---|
| copy | vectors | vectors of 8 random bits, delimiter | the vectors | 9, 8 |
| repeat_copy | vectors | vectors, count | count copies, end marker | 9, 9 |
| recall | items | items of three 6-bit vectors, a queried item | the next | 8, 6 |
| ngrams | bits | bits drawn from a random 6-gram table | each next bit | 1, 1 |
| sort | vectors | 8-bit vectors with priorities | the highest 4/5, in order | 9, 8 |

A batch is a dict of float32 `inputs` [B, T, I] and `targets` [B, T, O], and bool `mask`
[B, T], True at the answers' steps. The inputs are 0 there, except in `ngrams`, where
the answer of a step is the input of the next one.

Choices that the paper leaves open: only the repeat count separates the two phases of
`repeat_copy` (as in the paper, it is standardised by the mean and standard deviation of
the training counts, 1..10); vectors to be sorted have 8 bits, and no delimiter
separates them from the answer; the first bit of `ngrams` is predicted from a 0.

Axes: B batch; T steps; I inputs; O outputs; S maximum size in the batch.
"""

import functools
import math
import re
from typing import Any, NamedTuple

import numpy as np

from base.errors import FieldError, UserError, parse_number
from tasks.common.batches import ALL, Batch, EndlessBatches, Rows, bucketed
from tasks.common.splits import held_out_rng

BITS = 8  # bits of a vector to be copied or sorted
ITEM_BITS, ITEM_VECTORS = 6, 3
CONTEXT = 5  # number of bits that determine the distribution of the next one
MAX_REPEATS = 10  # in training
MAX_SIZE = 10_000  # number of vectors of a sequence, repeats included


class Kind(NamedTuple):
    """A task's widths I and O and its minimum size."""

    inputs: int
    outputs: int
    min_size: int


KINDS = {
    "copy": Kind(BITS + 1, BITS, 1),
    "repeat_copy": Kind(BITS + 1, BITS + 1, 1),
    "recall": Kind(ITEM_BITS + 2, ITEM_BITS, 2),
    "ngrams": Kind(1, 1, CONTEXT + 1),
    "sort": Kind(BITS + 1, BITS, 2),
}


def batches(kind: str, **sizes: int) -> EndlessBatches:
    """Returns the training batches of a kind; for `sizes` see `bucketed`."""
    return bucketed(functools.partial(sequences, kind), **sizes)


@functools.lru_cache(maxsize=32)
def held_out(kind: str, split: str, size: int | tuple[int, int], count: int) -> Batch:
    """Returns the first `count` sequences of a split, always the same.

    `size` is that of every sequence; for `repeat_copy` also (vectors, repeats).
    """
    size, *repeats = size if isinstance(size, tuple) else (size,)
    parts = [
        sequences(
            kind,
            held_out_rng(split, list(KINDS).index(kind), size, *repeats, index),
            np.full(1, size),
            size,
            repeats=repeats[0] if repeats else None,
        )
        for index in range(count)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_held_out(kind: str, size: Any) -> None:
    """Raises a UserError if the sequences of a split cannot have this size."""
    numbers = size if isinstance(size, tuple) else (size,)
    repeated = kind == "repeat_copy"
    if not 1 <= len(numbers) <= 1 + repeated or {*map(type, numbers)} != {int}:
        form = "a whole number" + " or (vectors, repeats)" * repeated
        raise UserError(f"config.evaluation.sizes has {size!r}: must be {form}")
    check_size(kind, "a size of config.evaluation.sizes", numbers[0])
    if math.prod(numbers) > MAX_SIZE:
        raise UserError(
            f"config.evaluation.sizes has {size!r}: the vectors of all repeats must be "
            f"at most {MAX_SIZE}"
        )


def sequences(
    kind: str,
    rng: np.random.Generator,
    sizes: np.ndarray,
    width: int,
    rows: Rows = ALL,
    *,
    repeats: int | None = None,
) -> Batch:
    """Draws a batch, or its `rows`; see the module's docstring.

    Args:
        kind: a key of `KINDS`.
        rng: random generator.
        sizes: [B] size of each sequence.
        width: S, at least the maximum of `sizes`.
        rows: sequences to return.
        repeats: number of copies in `repeat_copy`; by default drawn from 1..10 for
            each sequence.
    """
    shape = len(sizes), width
    if kind == "recall":
        items = rng.integers(0, 2, (*shape, ITEM_VECTORS, ITEM_BITS), np.int8)
        # Any item but the last can be queried: the answer is the next one.
        queried = rng.integers(0, sizes - 1)
        return _recall(items[rows], sizes[rows], queried[rows])
    if kind == "ngrams":
        return _ngrams(_random_ngrams(rng, *shape, rows), sizes[rows])
    vectors = rng.integers(0, 2, (*shape, BITS), np.int8)[rows]
    if kind == "copy":
        return _copy(vectors, sizes[rows])
    if kind == "sort":
        return _sort(vectors, rng.uniform(-1, 1, shape)[rows], sizes[rows])
    max_repeats = repeats or MAX_REPEATS
    counts = rng.integers(repeats or 1, max_repeats + 1, len(sizes))[rows]
    return _repeat_copy(vectors, sizes[rows], counts, max_repeats)


def parse(kind: str, text: str) -> Batch:
    """Parses one typed sequence and computes its answers: a batch with B = 1.

    | kind | text |
    |---|---|
    | copy | `10110100 01101001` |
    | repeat_copy | `10110100 01101001 x3` |
    | recall | `101010-110010-010101 001100-101011-111000 ? 101010-110010-010101` |
    | ngrams | `0110101` |
    | sort | `10110100:0.5 01101001:-0.25` |

    Raises:
        UserError: if the text is not a sequence of this kind.
    """
    min_size, words = KINDS[kind].min_size, text.split()
    if kind == "ngrams":
        bits = _bits(text.strip(), None)
        words = list(text.strip())
    elif kind == "recall":
        *words, mark, query = words if len(words) > 1 else ["", "", ""]
        if mark != "?" or query not in words[:-1]:
            raise UserError(
                "must end in `? ITEM`, where ITEM is in the sequence and not its last "
                "item: 000111-001100-010101 111000-110011-101010 ? 000111-001100-010101"
            )
        items = [[_bits(v, ITEM_BITS) for v in word.split("-")] for word in words]
        for word, item in zip(words, items, strict=True):
            if len(item) != ITEM_VECTORS:
                raise FieldError("an item", word, f"{ITEM_VECTORS} vectors joined by -")
    elif kind == "repeat_copy":
        *words, count = words or [""]
        if not re.fullmatch("x0*[1-9][0-9]{0,2}", count):
            raise FieldError("the last word", count, "a repeat count from x1 to x999")
        repeats = int(count[1:])
    elif kind == "sort":
        pairs = [word.partition(":")[::2] for word in words]
        words = [vector for vector, _ in pairs]
        priorities = np.array([[_number(number) for _, number in pairs]])
    if len(words) < min_size:
        raise UserError(f"the size is {len(words)}: must be at least {min_size}")
    sizes = np.array([len(words)])
    if kind == "ngrams":
        return _ngrams(np.array([bits]), sizes)
    if kind == "recall":
        return _recall(np.array([items]), sizes, np.array([words.index(query)]))
    vectors = np.array([[_bits(word, BITS) for word in words]])
    if kind == "copy":
        return _copy(vectors, sizes)
    if kind == "sort":
        return _sort(vectors, priorities, sizes)
    return _repeat_copy(vectors, sizes, np.array([repeats]), repeats)


def answer_text(kind: str, logits: np.ndarray) -> str:
    """Returns an answer, logits [T, O] at its steps, in the notation of `parse`.

    These are the vectors, with the more probable value of each bit; in `repeat_copy`,
    "end" for the end marker; in `ngrams`, the probability of a 1 at each step.
    """
    if kind == "ngrams":
        return " ".join(f"{p:.2f}" for p in 1 / (1 + np.exp(-logits[:, 0])))
    bits = ["".join("01"[int(bit > 0)] for bit in row) for row in logits]
    if kind != "repeat_copy":
        return " ".join(bits)
    ends = logits[:, BITS] > 0
    vectors = zip(bits, ends, strict=True)
    return " ".join("end" if end else vector[:BITS] for vector, end in vectors)


def size_name(size: int | tuple[int, int]) -> str:
    """Returns the name of a size, such as "20", or "10x20" for (vectors, repeats)."""
    return "x".join(map(str, size)) if isinstance(size, tuple) else str(size)


def optimal_bits(batch: Batch) -> np.ndarray:
    """Returns the cost in bits [B] of `ngrams` under the optimal predictor.

    Graves et al. (2014), section 4.4: after N1 ones and N0 zeros in a context, the
    probability of a 1 is (N1 + 1/2) / (N1 + N0 + 1). The first five bits cost 1 each.
    """
    bits = batch["targets"][..., 0].astype(int)
    rows = np.arange(len(bits))
    counts = np.full((len(bits), 2**CONTEXT, 2), 0.5)
    total = np.minimum(batch["mask"].sum(1), CONTEXT).astype(float)
    for t, context in _contexts(bits):
        in_context = counts[rows, context]
        probability = in_context[rows, bits[:, t]] / in_context.sum(1)
        total -= np.log2(probability) * batch["mask"][:, t]
        counts[rows, context, bits[:, t]] += 1
    return total


def check_size(kind: str, name: str, size: int) -> None:
    """Raises a FieldError with a name if a sequence cannot have this size."""
    if size < (min_size := KINDS[kind].min_size):
        raise FieldError(name, size, f"at least {min_size} for {kind}")


def _bits(text: str, count: int | None) -> list[int]:
    if not text or set(text) - {"0", "1"} or len(text) != (count or len(text)):
        number = f"{count} bits" if count else "bits"
        raise UserError(f"the bits are {text!r}: must be {number}, each 0 or 1")
    return [int(bit) for bit in text]


def _number(text: str) -> float:
    try:
        number = parse_number(text)
    except ValueError:
        number = np.nan
    if not abs(number) <= 1:
        accepted = "a number in [-1, 1], as in 10110100:0.5"
        raise FieldError("a priority", text, accepted)
    return number


# Encoders of drawn or parsed sequences, padded to S, as a batch.


def _valid(sizes, width):
    """Mask [B, S] that is False at padding."""
    return np.arange(width) < sizes[:, None]


def _gather(values, index, mask):
    """Values [B, S, O] at indices [B, T] where the mask is True; 0 elsewhere."""
    index = np.where(mask, index, 0)
    return np.take_along_axis(values, index[..., None], 1) * mask[..., None]


def _batch(inputs, targets, mask) -> Batch:
    return {
        "inputs": inputs.astype(np.float32),
        "targets": targets.astype(np.float32),
        "mask": mask,
    }


def _copy(vectors, sizes) -> Batch:
    width = vectors.shape[1]
    vectors = vectors * _valid(sizes, width)[..., None]
    inputs = np.zeros((len(sizes), 2 * width + 1, BITS + 1))
    inputs[:, :width, :BITS] = vectors
    inputs[np.arange(len(sizes)), sizes, BITS] = 1
    index = np.arange(inputs.shape[1]) - sizes[:, None] - 1
    mask = (index >= 0) & (index < sizes[:, None])
    return _batch(inputs, _gather(vectors, index, mask), mask)


def _repeat_copy(vectors, sizes, counts, max_repeats) -> Batch:
    rows, width = np.arange(len(sizes)), vectors.shape[1]
    vectors = vectors * _valid(sizes, width)[..., None]
    inputs = np.zeros((len(sizes), width * (1 + max_repeats) + 2, BITS + 1))
    inputs[:, :width, :BITS] = vectors
    in_training = np.arange(1, MAX_REPEATS + 1)
    inputs[rows, sizes, BITS] = (counts - in_training.mean()) / in_training.std()
    index = np.arange(inputs.shape[1]) - sizes[:, None] - 1
    end = (sizes * counts)[:, None]
    mask = (index >= 0) & (index < end)
    copies = _gather(vectors, index % sizes[:, None], mask)
    targets = np.concatenate([copies, (index == end)[..., None]], -1)
    return _batch(inputs, targets, mask | (index == end))


def _recall(items, sizes, queried) -> Batch:
    item = ITEM_VECTORS + 1  # with its delimiter
    rows, width = np.arange(len(sizes)), items.shape[1]
    inputs = np.zeros((len(sizes), item * (width + 2), ITEM_BITS + 2))
    sequence = inputs[:, : item * width].reshape(len(sizes), width, item, -1)
    valid = _valid(sizes, width)
    sequence[..., 0, ITEM_BITS] = valid
    sequence[..., 1:, :ITEM_BITS] = items * valid[..., None, None]
    query = item * sizes
    inputs[rows, query, ITEM_BITS + 1] = 1
    inputs[rows, query + item, ITEM_BITS + 1] = 1
    steps = np.arange(1, item)
    inputs[rows[:, None], query[:, None] + steps, :ITEM_BITS] = items[rows, queried]
    index = np.arange(inputs.shape[1]) - (query + item + 1)[:, None]
    mask = (index >= 0) & (index < ITEM_VECTORS)
    return _batch(inputs, _gather(items[rows, queried + 1], index, mask), mask)


def _contexts(bits):
    """Yields each step t from the sixth bit on with its context [B] in 0..31."""
    for t in range(CONTEXT, bits.shape[1]):
        yield t, bits[:, t - CONTEXT : t] @ (1 << np.arange(CONTEXT))


def _random_ngrams(rng, batch_size, width, rows):
    """Bits [B, S], each sequence drawn from its own random 6-gram table."""
    # Probabilities of a 1.
    table = rng.beta(0.5, 0.5, (batch_size, 2**CONTEXT))[rows]
    bits = rng.integers(0, 2, (batch_size, width))[rows]
    uniform = rng.random((batch_size, width))[rows]
    for t, context in _contexts(bits):
        bits[:, t] = uniform[:, t] < table[np.arange(len(bits)), context]
    return bits


def _ngrams(bits, sizes) -> Batch:
    mask = _valid(sizes, bits.shape[1])
    bits = bits * mask
    previous = np.pad(bits[:, :-1], ((0, 0), (1, 0))) * mask
    return _batch(previous[..., None], bits[..., None], mask)


def _sort(vectors, priority, sizes) -> Batch:
    width = vectors.shape[1]
    valid = _valid(sizes, width)
    vectors, priority = vectors * valid[..., None], np.where(valid, priority, -np.inf)
    inputs = np.zeros((len(sizes), width + 4 * width // 5, BITS + 1))
    inputs[:, :width, :BITS] = vectors
    inputs[:, :width, BITS] = np.where(valid, priority, 0)
    order = (-priority).argsort(1, kind="stable")
    ranked = np.take_along_axis(vectors, order[..., None], 1)
    index = np.arange(inputs.shape[1]) - sizes[:, None]
    mask = (index >= 0) & (index < (4 * sizes // 5)[:, None])
    return _batch(inputs, _gather(ranked, index, mask), mask)
