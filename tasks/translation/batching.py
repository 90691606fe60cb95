"""Batches of sentence pairs in a few static shapes with little padding.

Every new shape costs a compilation, and a padded position costs as much as a real one.
There are two ways to fill the rows of a batch:

*   one sentence per row, in shapes (S, T) that are chosen jointly to minimise the
    padding of the corpus. With short strings, about a sixth of the positions is padding
    with twelve shapes, and about a tenth with thirty;
*   `pack`: several sentences per row, each ending in EOS. With three shapes, a few per
    cent is padding. The model must separate the sentences of a row; the EOS tokens mark
    their ends, so that a batch consists of ids only.

A batch is {"source": int32 [B, S], "target": int32 [B, T]}. Padding (0 = PAD) follows
the last EOS of a row; a row that is all PAD is filler.

Axes: B rows of a batch; S source length and T target length of a row, with EOS.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from tasks.common.batches import Batch, pad, rows_of
from tasks.common.vocabulary import Segmentations


def choose_boxes(
    source: np.ndarray, target: np.ndarray, count: int
) -> list[tuple[int, int]]:
    """Chooses row shapes (boxes) that hold every sentence pair with little padding.

    Starts from the best partition of the pairs in order of S + T (dynamic programming),
    then changes one side of a box at a time while the padding decreases.

    Args:
        source: [pairs] source lengths.
        target: [pairs] target lengths.
        count: maximum number of boxes (S, T), returned in order of S + T.
    """
    sizes, weights = np.unique(
        np.stack([source, target], 1), axis=0, return_counts=True
    )
    boxes = _partition(sizes, weights, count)
    best = _area(boxes, sizes, weights)
    sides = [np.unique(sizes[:, axis]) for axis in (0, 1)]
    improved = True
    while improved:
        improved = False
        for box in boxes:
            for axis, values in enumerate(sides):
                index = np.searchsorted(values, box[axis])
                for offset in (-4, -2, -1, 1, 2, 4):
                    if not 0 <= index + offset < len(values):
                        continue
                    previous, box[axis] = box[axis], values[index + offset]
                    area = _area(boxes, sizes, weights)
                    if area < best:
                        best, improved = area, True
                    else:
                        box[axis] = previous
    used = np.unique(_best_boxes(boxes, sizes)[0])
    return sorted(((int(s), int(t)) for s, t in boxes[used]), key=sum)


def _partition(sizes: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Best boxes [count, 2], each for a range of S + T, by dynamic programming."""
    sums = sizes.sum(1)
    groups = np.unique(sums)
    maxima = np.array([sizes[sums == g].max(0) for g in groups])  # [groups, 2]
    before = np.cumsum([0, *(weights[sums == g].sum() for g in groups)])
    n = len(groups)
    cost = np.full((n + 1, n + 1), np.inf)  # of groups i..j-1 in one box
    for i in range(n):
        areas = np.maximum.accumulate(maxima[i:]).sum(1)
        cost[i, i + 1 :] = areas * (before[i + 1 :] - before[i])
    best, cuts = cost[0], []
    for _ in range(min(count, n) - 1):
        total = best[:, None] + cost
        cuts.append(total.argmin(0))
        best = total.min(0)
    boxes, end = [], n
    for cut in reversed(cuts):
        boxes.append(maxima[cut[end] : end].max(0))
        end = cut[end]
    return np.array([*boxes, maxima[:end].max(0)])


def _best_boxes(boxes: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of the smallest box that holds each pair, and its S + T; inf if none."""
    holds = (sizes[:, None] <= boxes).all(-1)  # [sizes, boxes]
    area = np.where(holds, boxes.sum(1), np.inf)
    return area.argmin(1), area.min(1)


def _area(boxes: np.ndarray, sizes: np.ndarray, weights: np.ndarray) -> float:
    """Total number of positions, padding included, if each pair has its best box."""
    return float(_best_boxes(boxes, sizes)[1] @ weights)


def _pack(
    source: np.ndarray, target: np.ndarray, shapes: list[tuple[int, int]]
) -> list[list[list[int]]]:
    """Packs pairs by best-fit decreasing; returns, by shape, rows of pair indices."""
    shapes = sorted(shapes, key=sum)
    rows: list[list[list[int]]] = [[] for _ in shapes]
    height, width = np.max(shapes, axis=0) + 1
    # Open rows by their free (source, target) positions; a pair goes to the fullest row
    # in which it fits.
    open_rows: dict[tuple[int, int], list[list[int]]] = {}
    count = np.zeros((height, width), np.int32)
    total_free = np.add.outer(np.arange(height), np.arange(width))
    for n in np.argsort(-(source + target), kind="stable"):
        s, t = int(source[n]), int(target[n])
        fits = np.where(count[s:, t:] > 0, total_free[s:, t:], height + width)
        best = int(fits.argmin()) if fits.size else 0
        if fits.size and fits.flat[best] < height + width:
            i, j = divmod(best, width - t)
            free = (s + i, t + j)
            row = open_rows[free].pop()
            count[free] -= 1
        else:
            k = next(k for k, (S, T) in enumerate(shapes) if s <= S and t <= T)
            free, row = shapes[k], []
            rows[k].append(row)
        row.append(int(n))
        free = (free[0] - s, free[1] - t)
        if min(free) > 1:
            open_rows.setdefault(free, []).append(row)
            count[free] += 1
    return rows


@dataclasses.dataclass
class TranslationBatches:
    """Endless random access to training batches; batch i depends on (seed, i) only.

    An epoch is `len(self)` batches and has every pair exactly once; batch i belongs to
    epoch i // len(self). Every epoch has the same rows with the same shapes, but a new
    grouping of rows into batches, a new order of batches and new segmentations.

    Rows are planned for the expected lengths of their sentences. If the drawn
    segmentations of a row are too long, the sentences that exceed their best
    segmentation the most take the best one instead, until the row fits.
    """

    source: Segmentations  # source sentences
    target: Segmentations  # their translations, in the same order
    _: dataclasses.KW_ONLY
    # maximum of B * max(S, T), padding included; a batch of `batch_size_multiple` rows
    # may exceed it
    tokens: int
    max_shapes: int  # maximum number of shapes
    seed: int  # seed of the order and of the drawn segmentations
    pack: bool = False  # whether a row has several sentences, see above
    batch_size_multiple: int = 8  # divisor of B; a multiple of the number of devices

    def __post_init__(self):
        self._sides = self.source, self.target
        # At least the best length, so that the best segmentations always fit.
        s, t = (
            np.maximum(np.rint(side.mean_lengths()), side.best_lengths()).astype(int)
            for side in self._sides
        )
        if self.pack:
            boxes = _row_sizes(s, t, self.max_shapes)
            rows = _pack(s, t, boxes)
        else:
            boxes = choose_boxes(s, t, self.max_shapes)
            assigned, _ = _best_boxes(np.array(boxes), np.stack([s, t], 1))
            rows = [
                [[int(n)] for n in np.flatnonzero(assigned == k)]
                for k in range(len(boxes))
            ]
        unit = self.batch_size_multiple
        heights = [max(self.tokens // max(box) // unit, 1) * unit for box in boxes]
        _merge_remainders(rows, boxes, heights)
        filled = [k for k in range(len(boxes)) if rows[k]]
        self._rows = [rows[k] for k in filled]
        self.shapes = [(heights[k], *boxes[k]) for k in filled]
        self._counts = [-(-len(rows[k]) // heights[k]) for k in filled]
        self._plan: tuple[int, list[tuple[int, np.ndarray]]] | None = None

    def __len__(self) -> int:
        """Number of batches per epoch."""
        return sum(self._counts)

    def __getitem__(self, index: int) -> Batch:
        """Returns the batch of step `index`, for any index from 0."""
        return self.part(index, (0,), 1)

    def part(self, index: int, pieces: Sequence[int], count: int) -> Batch:
        """Returns a part of batch `index`; see `tasks.common.batches.rows_of`."""
        epoch, position = divmod(index, len(self))
        plan = self._plan  # read once: other threads may replace it
        if plan is None or plan[0] != epoch:
            self._plan = plan = (epoch, self._order(epoch))
        shape, members = plan[1][position]
        height, *widths = self.shapes[shape]
        rng = np.random.default_rng((self.seed, epoch, position))
        sentences = [self._rows[shape][r] for r in members]
        rows = rows_of(pieces, count, height)
        return {
            name: _fill(side, sentences, rows, width, rng)
            for name, side, width in zip(
                ("source", "target"), self._sides, widths, strict=True
            )
        }

    def _order(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        """The batches of an epoch, each a shape's index and the indices of its rows."""
        rng = np.random.default_rng((self.seed, epoch))
        batches = []
        for k, count in enumerate(self._counts):
            # array_split spreads the filler rows over the shape's batches.
            order = rng.permutation(len(self._rows[k]))
            batches += [(k, part) for part in np.array_split(order, count)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def padding(self) -> float:
        """Returns the share of PAD among the positions of the first epoch."""
        real = size = 0
        for i in range(len(self)):
            for ids in self[i].values():
                real, size = real + np.count_nonzero(ids), size + ids.size
        return 1 - real / size


def _row_sizes(
    source: np.ndarray, target: np.ndarray, count: int
) -> list[tuple[int, int]]:
    """Row shapes for packing: for the longest pair, half of it, a quarter of it, ..."""
    ratio = source.sum() / target.sum()
    T = max(target.max(), int(np.ceil(source.max() / ratio)))
    halves = sorted({-(-int(T) // 2**k) for k in range(count)})
    return [(max(int(np.ceil(ratio * h)), 1), h) for h in halves]


def _merge_remainders(
    rows: list[list], boxes: list[tuple[int, int]], heights: list[int]
) -> None:
    """Moves the rows of an incomplete batch to a larger box if it adds less padding."""
    for k, (s, t) in enumerate(boxes):
        remainder = len(rows[k]) % heights[k]
        for S, T in boxes[k + 1 :]:
            if remainder and S >= s and T >= t:
                if remainder * (S + T - s - t) < (heights[k] - remainder) * (s + t):
                    rows[boxes.index((S, T))] += rows[k][-remainder:]
                    del rows[k][-remainder:]
                break


def _fill(
    side: Segmentations,
    sentences: list[list[int]],
    rows: np.ndarray,
    width: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Ids int32 [rows, width], one drawn segmentation per sentence.

    `sentences` are the numbers of those of each row of the batch, without filler.
    """
    drawn = side.draw(np.concatenate(sentences), rng)
    ends = np.cumsum([len(row) for row in sentences])
    filled: list[Sequence[int]] = []
    for number in rows:
        if number >= len(sentences):
            filled.append([])
            continue
        row = sentences[number]
        chosen = [*drawn[ends[number] - len(row) : ends[number]]]
        overflow = sum(side.lengths[c] for c in chosen) - width
        if overflow > 0:
            best = side.first[row]
            excess = side.lengths[chosen] - side.lengths[best]
            for i in np.argsort(-excess):
                if overflow <= 0:
                    break
                chosen[i], overflow = best[i], overflow - excess[i]
        filled.append(np.concatenate([side.ids(c) for c in chosen]))
    return pad(filled, width)


def eval_batches(
    source: Segmentations,
    target: Segmentations,
    *,
    batch_size: int = 64,
    max_shapes: int = 4,
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Yields every pair once in its best segmentation, one per row, in few shapes.

    There are no more shapes than batches of a single shape would be, so that few pairs
    need few programs and little filler.

    Yields:
        (indices [n], batch [B]): row r < n is pair indices[r]; the rest is filler.
    """
    if not len(source):
        return
    sides = {"source": source, "target": target}
    lengths = [side.best_lengths() for side in sides.values()]
    boxes = choose_boxes(*lengths, min(max_shapes, -(-len(source) // batch_size)))
    assigned, _ = _best_boxes(np.array(boxes), np.stack(lengths, 1))
    for k, box in enumerate(boxes):
        members = np.flatnonzero(assigned == k)
        for start in range(0, len(members), batch_size):
            indices = members[start : start + batch_size]
            filler, batch = [[]] * (batch_size - len(indices)), {}
            for (name, side), width in zip(sides.items(), box, strict=True):
                best = [side.ids(side.first[n]) for n in indices]
                batch[name] = pad(best + filler, width)
            yield indices, batch
