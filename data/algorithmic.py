"""The tasks of the Neural Turing Machine (Graves et al. 2014, section 4), generated.

| kind | size | the sequence, and what is asked | in, out |
|---|---|---|---|
| copy | vectors | 8 random bits each, a delimiter; the same again | 9, 8 |
| repeat_copy | vectors | the same, how often; so many times, and an end marker | 9, 9 |
| recall | items | three vectors of 6 bits each; one of them; the next one | 8, 6 |
| ngrams | bits | of a random 6-gram table; at each bit the next one | 1, 1 |
| sort | vectors | 8 bits and a priority each; the highest 4/5, in order | 9, 8 |

A batch is a dict of float32 `inputs` [B, T, I] and `targets` [B, T, O], and bool `mask`
[B, T], True where an answer is asked for. Inputs are 0 while answers are given, except
in `ngrams`, where the answer at a step is the input of the next one.

Left open by the paper, and chosen here: the repeat count is the only mark between the
two phases of `repeat_copy`, standardised as in the paper by the mean and deviation of
the counts of training, 1..10; vectors to be sorted have 8 bits, and nothing stands
between them and the answer; the first bit of `ngrams` is predicted from a 0.

Axes: B batch; T steps; I inputs; O outputs; S the largest size of a batch.
"""

import functools
import re
from typing import Any, NamedTuple

import numpy as np

from data import bucketing
from data.endless import Batch
from data.splits import held_out_rng
from errors import UserError

BITS = 8  # of a vector that is copied or sorted
ITEM_BITS, ITEM_VECTORS = 6, 3
CONTEXT = 5  # bits that the next one depends on
REPEATS = 10  # at most, in training


class Kind(NamedTuple):
    """A task's widths and its smallest size."""

    inputs: int
    outputs: int
    fewest: int


KINDS = {
    "copy": Kind(BITS + 1, BITS, 1),
    "repeat_copy": Kind(BITS + 1, BITS + 1, 1),
    "recall": Kind(ITEM_BITS + 2, ITEM_BITS, 2),
    "ngrams": Kind(1, 1, CONTEXT + 1),
    "sort": Kind(BITS + 1, BITS, 2),
}


def kind_of(name: str) -> Kind:
    """Returns a row of `KINDS`.

    Raises:
        UserError: for an unknown kind.
    """
    if name not in KINDS:
        raise UserError(
            f"config.data.kind is {name!r}: must be one of {', '.join(KINDS)}"
        )
    return KINDS[name]


def batches(
    kind: str, *, min_size: int, max_size: int, buckets: int, batch_size: int, seed: int
) -> bucketing.Batches:
    """Returns endless training batches; see `data.bucketing.Batches`.

    Raises:
        UserError: for an unknown kind or a number out of its range.
    """
    _check_size(kind, "config.data.min_size", min_size)
    return bucketing.Batches(
        functools.partial(sequences, kind),
        min_size=min_size,
        max_size=max_size,
        buckets=buckets,
        batch_size=batch_size,
        seed=seed,
    )


def held_out(kind: str, split: str, size: int | tuple[int, int], count: int) -> Batch:
    """The first `count` sequences of a split, all of one size and always the same.

    Args:
        kind: a key of `KINDS`.
        split: "validation" or "test".
        size: of each sequence; of `repeat_copy` also (vectors, repeats).
        count: B.

    Raises:
        UserError: for an unknown kind or split, or a size out of its range.
    """
    size, *repeats = _held_out_size(kind, size)
    rows = [
        sequences(
            kind,
            held_out_rng(split, list(KINDS).index(kind), size, *repeats, row),
            np.full(1, size),
            size,
            *repeats,
        )
        for row in range(count)
    ]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def sequences(
    kind: str,
    rng: np.random.Generator,
    sizes: np.ndarray,
    width: int,
    repeats: int | None = None,
) -> Batch:
    """Draws sequences.

    Args:
        kind: a key of `KINDS`.
        rng: what they are drawn from.
        sizes: [B] of each sequence; see the module's docstring.
        width: S, at least the largest of them.
        repeats: of `repeat_copy`; drawn from 1..10 for each sequence where not given.

    Returns:
        A batch, as in the module's docstring.

    Raises:
        ValueError: if `width` is too small, or `repeats` has no meaning.
    """
    if max(sizes) > width:
        raise ValueError(f"sequences: size {max(sizes)} does not fit width {width}")
    if repeats is not None and kind != "repeat_copy":
        raise ValueError(f"{kind} has no repeats")
    if kind == "recall":
        shape = len(sizes), width, ITEM_VECTORS, ITEM_BITS
        items = rng.integers(0, 2, shape, np.int8)
        return _recall(items, sizes, rng.integers(0, sizes - 1))  # has one behind it
    if kind == "ngrams":
        return _ngrams(_random_ngrams(rng, len(sizes), width), sizes)
    vectors = rng.integers(0, 2, (len(sizes), width, BITS), np.int8)
    if kind == "copy":
        return _copy(vectors, sizes)
    if kind == "sort":
        return _sort(vectors, rng.uniform(-1, 1, vectors.shape[:2]), sizes)
    most = repeats or REPEATS
    counts = rng.integers(repeats or 1, most + 1, len(sizes))
    return _repeat_copy(vectors, sizes, counts, most)


def parse(kind: str, text: str) -> Batch:
    """Reads one sequence as it is typed, with its answers.

    | kind | text |
    |---|---|
    | copy | `10110100 01101001` |
    | repeat_copy | `10110100 01101001 x3` |
    | recall | `101010-110010-010101 001100-101011-111000 ? 101010-110010-010101` |
    | ngrams | `0110101` |
    | sort | `10110100:0.5 01101001:-0.25` |

    Args:
        kind: a key of `KINDS`.
        text: of one sequence.

    Returns:
        A batch of one row.

    Raises:
        UserError: for text that is no such sequence, with what is wrong with it.
    """
    fewest, words = kind_of(kind).fewest, text.split()
    if kind == "ngrams":
        bits = _bits(text.strip(), None)
        words = list(text.strip())
    elif kind == "recall":
        *words, mark, asked_for = words if len(words) > 1 else ["", "", ""]
        if mark != "?" or asked_for not in words[:-1]:
            raise UserError(
                "must end in `? ITEM`, an item among those before the last one, as in "
                "000111-001100-010101 111000-110011-101010 ? 000111-001100-010101"
            )
        items = [[_bits(v, ITEM_BITS) for v in word.split("-")] for word in words]
        if any(len(item) != ITEM_VECTORS for item in items):
            raise UserError(f"an item must be {ITEM_VECTORS} vectors, with - between")
    elif kind == "repeat_copy":
        *words, count = words or [""]
        if not re.fullmatch("x0*[1-9][0-9]{0,2}", count):
            raise UserError(
                f"must end in how often, as in x3 or x999, not in {count!r}"
            )
        repeats = int(count[1:])
    elif kind == "sort":
        pairs = [word.partition(":")[::2] for word in words]
        words = [vector for vector, _ in pairs]
        priorities = np.array([[_number(number) for _, number in pairs]])
    if len(words) < fewest:
        raise UserError(f"a sequence of {len(words)}: must be at least {fewest}")
    sizes = np.array([len(words)])
    if kind == "ngrams":
        return _ngrams(np.array([bits]), sizes)
    if kind == "recall":
        return _recall(np.array([items]), sizes, np.array([words.index(asked_for)]))
    vectors = np.array([[_bits(word, BITS) for word in words]])
    if kind == "copy":
        return _copy(vectors, sizes)
    if kind == "sort":
        return _sort(vectors, priorities, sizes)
    return _repeat_copy(vectors, sizes, np.array([repeats]), repeats)


def answer_text(kind: str, logits: np.ndarray) -> str:
    """Writes an answer in the notation of `parse`.

    Args:
        kind: a key of `KINDS`.
        logits: [T, O] of the steps that ask for an answer.

    Returns:
        The vectors, each bit with its more probable value; of `repeat_copy` "end" for
        the end marker; of `ngrams` the probability of a one at each step.
    """
    if kind == "ngrams":
        return " ".join(f"{p:.2f}" for p in 1 / (1 + np.exp(-logits[:, 0])))
    bits = ["".join("01"[int(bit > 0)] for bit in row) for row in logits]
    if kind != "repeat_copy":
        return " ".join(bits)
    ends = logits[:, BITS] > 0
    rows = zip(bits, ends, strict=True)
    return " ".join("end" if end else row[:BITS] for row, end in rows)


def size_name(size: int | tuple[int, int]) -> str:
    """Name of a held-out size, such as "20" or "10x20" for (vectors, repeats)."""
    return "x".join(map(str, size)) if isinstance(size, tuple) else str(size)


def optimal_bits(batch: Batch) -> np.ndarray:
    """Bits [B] that the optimal predictor of `ngrams` needs for each sequence.

    Graves et al. (2014), section 4.4: after N1 ones and N0 zeros in a context, a one
    has the probability (N1 + 1/2) / (N1 + N0 + 1), and the first five bits 1/2.
    """
    bits = batch["targets"][..., 0].astype(int)
    rows = np.arange(len(bits))
    seen = np.full((len(bits), 2**CONTEXT, 2), 0.5)
    total = np.minimum(batch["mask"].sum(1), CONTEXT).astype(float)
    for t, context in _contexts(bits):
        counts = seen[rows, context]
        likely = counts[rows, bits[:, t]] / counts.sum(1)
        total -= np.log2(likely) * batch["mask"][:, t]
        seen[rows, context, bits[:, t]] += 1
    return total


def _held_out_size(kind: str, size: Any) -> tuple[int, ...]:
    numbers = size if isinstance(size, tuple) else (size,)
    several = kind == "repeat_copy"
    if not 1 <= len(numbers) <= 1 + several or {*map(type, numbers)} != {int}:
        form = "a whole number" + " or two, vectors and repeats" * several
        raise UserError(f"config.evaluation.sizes has {size!r}: must be {form}")
    _check_size(kind, "a size of config.evaluation.sizes", numbers[0])
    if min(numbers) < 1:
        raise UserError(
            f"config.evaluation.sizes has {size!r}: must be at least 1 repeat"
        )
    return numbers


def _check_size(kind: str, name: str, size: int) -> None:
    fewest = kind_of(kind).fewest
    if size < fewest:
        raise UserError(f"{name} is {size}: must be at least {fewest} for {kind}")


def _bits(text: str, count: int | None) -> list[int]:
    if not text or set(text) - {"0", "1"} or len(text) != (count or len(text)):
        raise UserError(f"{text!r} must be {f'{count} ' * bool(count)}bits, 0 or 1")
    return [int(bit) for bit in text]


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not abs(number) <= 1:
        raise UserError(
            f"a priority is {text!r}: must be a number in -1..1, as in 10110100:0.5"
        )
    return number


# Encoders: what is drawn or typed, of S each with padding at the end, to a batch.


def _there(sizes, width):
    """[B, S], False at padding."""
    return np.arange(width) < sizes[:, None]


def _answers(values, place, asked):
    """Values [B, S, O] at places [B, T], where asked; else 0."""
    place = np.where(asked, place, 0)
    return np.take_along_axis(values, place[..., None], 1) * asked[..., None]


def _batch(inputs, targets, mask) -> Batch:
    return {
        "inputs": inputs.astype(np.float32),
        "targets": targets.astype(np.float32),
        "mask": mask,
    }


def _copy(vectors, sizes) -> Batch:
    width = vectors.shape[1]
    vectors = vectors * _there(sizes, width)[..., None]
    inputs = np.zeros((len(sizes), 2 * width + 1, BITS + 1))
    inputs[:, :width, :BITS] = vectors
    inputs[np.arange(len(sizes)), sizes, BITS] = 1
    place = np.arange(inputs.shape[1]) - sizes[:, None] - 1
    asked = (place >= 0) & (place < sizes[:, None])
    return _batch(inputs, _answers(vectors, place, asked), asked)


def _repeat_copy(vectors, sizes, counts, most) -> Batch:
    rows, width = np.arange(len(sizes)), vectors.shape[1]
    vectors = vectors * _there(sizes, width)[..., None]
    inputs = np.zeros((len(sizes), width * (1 + most) + 2, BITS + 1))
    inputs[:, :width, :BITS] = vectors
    known = np.arange(1, REPEATS + 1)
    inputs[rows, sizes, BITS] = (counts - known.mean()) / known.std()
    place = np.arange(inputs.shape[1]) - sizes[:, None] - 1
    end = (sizes * counts)[:, None]
    asked = (place >= 0) & (place < end)
    copies = _answers(vectors, place % sizes[:, None], asked)
    targets = np.concatenate([copies, (place == end)[..., None]], -1)
    return _batch(inputs, targets, asked | (place == end))


def _recall(items, sizes, asked_for) -> Batch:
    item = ITEM_VECTORS + 1  # with its delimiter
    rows, width = np.arange(len(sizes)), items.shape[1]
    inputs = np.zeros((len(sizes), item * (width + 2), ITEM_BITS + 2))
    shown = inputs[:, : item * width].reshape(len(sizes), width, item, -1)
    there = _there(sizes, width)
    shown[..., 0, ITEM_BITS] = there
    shown[..., 1:, :ITEM_BITS] = items * there[..., None, None]
    query = item * sizes
    inputs[rows, query, ITEM_BITS + 1] = 1
    inputs[rows, query + item, ITEM_BITS + 1] = 1
    steps = np.arange(1, item)
    inputs[rows[:, None], query[:, None] + steps, :ITEM_BITS] = items[rows, asked_for]
    place = np.arange(inputs.shape[1]) - (query + item + 1)[:, None]
    asked = (place >= 0) & (place < ITEM_VECTORS)
    return _batch(inputs, _answers(items[rows, asked_for + 1], place, asked), asked)


def _contexts(bits):
    """Step and number of the five bits before it, [B], from the sixth bit on."""
    for t in range(CONTEXT, bits.shape[1]):
        yield t, bits[:, t - CONTEXT : t] @ (1 << np.arange(CONTEXT))


def _random_ngrams(rng, rows, width):
    """[B, S] bits, each drawn by what a table of its own says of the five before it."""
    table = rng.beta(0.5, 0.5, (rows, 2**CONTEXT))  # of a one
    bits = rng.integers(0, 2, (rows, width))
    chance = rng.random(bits.shape)
    for t, context in _contexts(bits):
        bits[:, t] = chance[:, t] < table[np.arange(rows), context]
    return bits


def _ngrams(bits, sizes) -> Batch:
    asked = _there(sizes, bits.shape[1])
    bits = bits * asked
    before = np.pad(bits[:, :-1], ((0, 0), (1, 0))) * asked
    return _batch(before[..., None], bits[..., None], asked)


def _sort(vectors, priority, sizes) -> Batch:
    width = vectors.shape[1]
    there = _there(sizes, width)
    vectors, priority = vectors * there[..., None], np.where(there, priority, -np.inf)
    inputs = np.zeros((len(sizes), width + 4 * width // 5, BITS + 1))
    inputs[:, :width, :BITS] = vectors
    inputs[:, :width, BITS] = np.where(there, priority, 0)
    order = (-priority).argsort(1, kind="stable")
    ranked = np.take_along_axis(vectors, order[..., None], 1)
    place = np.arange(inputs.shape[1]) - sizes[:, None]
    asked = (place >= 0) & (place < (4 * sizes // 5)[:, None])
    return _batch(inputs, _answers(ranked, place, asked), asked)
