"""Batches of a few static shapes, little of them padding.

Every new shape costs a compilation, and a padded position costs as much as a real one.
There are two ways to fill the rows of a batch:

*   one sentence a row, in boxes (S, T) whose sizes are chosen together so that the
    corpus wastes the least. Twelve boxes still pad about a sixth of a corpus of short
    strings, and it takes about thirty to come below a tenth;
*   `pack`: several sentences a row, one after the other, each with its EOS. Three
    shapes pad a few per cent. The model has to keep the sentences of a row apart; they
    are told by the EOS behind them, so that the batch holds nothing more than the ids.

S is the source length and T the target length, both with EOS. A batch is {"source":
int32 [rows, S], "target": int32 [rows, T]}, 0 = PAD, always after the last EOS of a
row; rows that are all PAD are filler.
"""

from collections.abc import Iterator

import numpy as np

from data.endless import Batch
from data.vocabulary import PAD, Segmentations


def choose_boxes(
    source: np.ndarray, target: np.ndarray, count: int
) -> list[tuple[int, int]]:
    """Chooses box sizes that hold every sentence pair with the least padding.

    The best partition of the pairs in order of S + T (dynamic programming), its sides
    then moved one at a time while that helps.

    Args:
        source: [sentences] source lengths.
        target: [sentences] target lengths.
        count: number of boxes, at most.

    Returns:
        (S, T) of each box, smallest first.
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
                place = np.searchsorted(values, box[axis])
                for step in (-4, -2, -1, 1, 2, 4):
                    if not 0 <= place + step < len(values):
                        continue
                    kept, box[axis] = box[axis], values[place + step]
                    area = _area(boxes, sizes, weights)
                    if area < best:
                        best, improved = area, True
                    else:
                        box[axis] = kept
    used = np.unique(_smallest(boxes, sizes)[0])
    return sorted(((int(s), int(t)) for s, t in boxes[used]), key=sum)


def _partition(sizes: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    sums = sizes.sum(1)
    groups = np.unique(sums)
    tall = np.array([sizes[sums == g].max(0) for g in groups])  # [groups, 2]
    heavy = np.cumsum([0, *(weights[sums == g].sum() for g in groups)])
    n = len(groups)
    cost = np.full((n + 1, n + 1), np.inf)  # of groups i..j-1 in one box
    for i in range(n):
        sides = np.maximum.accumulate(tall[i:]).sum(1)
        cost[i, i + 1 :] = sides * (heavy[i + 1 :] - heavy[i])
    best, cuts = cost[0], []
    for _ in range(min(count, n) - 1):
        total = best[:, None] + cost
        cuts.append(total.argmin(0))
        best = total.min(0)
    boxes, end = [], n
    for cut in reversed(cuts):
        boxes.append(tall[cut[end] : end].max(0))
        end = cut[end]
    return np.array([*boxes, tall[:end].max(0)])


def _smallest(boxes: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest box that holds each pair, and its area; inf where none does."""
    holds = (sizes[:, None] <= boxes).all(-1)  # [sizes, boxes]
    area = np.where(holds, boxes.sum(1), np.inf)
    return area.argmin(1), area.min(1)


def _area(boxes: np.ndarray, sizes: np.ndarray, weights: np.ndarray) -> float:
    return float(_smallest(boxes, sizes)[1] @ weights)


def _pack(
    source: np.ndarray, target: np.ndarray, shapes: list[tuple[int, int]]
) -> list[list[list[int]]]:
    """Best fit, longest first: for each shape its rows, each a list of sentences."""
    shapes = sorted(shapes, key=sum)
    rows: list[list[list[int]]] = [[] for _ in shapes]
    height, width = np.max(shapes, axis=0) + 1
    # Open rows by what is left of them; the search takes the fullest that fits.
    open_rows: dict[tuple[int, int], list[list[int]]] = {}
    count = np.zeros((height, width), np.int32)
    left_over = np.add.outer(np.arange(height), np.arange(width))
    for n in np.argsort(-(source + target), kind="stable"):
        s, t = int(source[n]), int(target[n])
        fits = np.where(count[s:, t:] > 0, left_over[s:, t:], height + width)
        place = int(fits.argmin()) if fits.size else 0
        if fits.size and fits.flat[place] < height + width:
            i, j = divmod(place, width - t)
            left = (s + i, t + j)
            row = open_rows[left].pop()
            count[left] -= 1
        else:
            k = next(k for k, (S, T) in enumerate(shapes) if s <= S and t <= T)
            left, row = shapes[k], []
            rows[k].append(row)
        row.append(int(n))
        left = (left[0] - s, left[1] - t)
        if min(left) > 1:
            open_rows.setdefault(left, []).append(row)
            count[left] += 1
    return rows


class Batches:
    """Endless random access to training batches: element i depends on (seed, i) only.

    An epoch is `len(self)` batches and holds every pair exactly once; element i belongs
    to epoch i // len(self). Which sentences share a row, and the row's shape, is the
    same in every epoch; which rows share a batch, the order of the batches and the
    segmentations are drawn anew.

    A row is laid out for the expected length of its sentences. Where drawn
    segmentations are longer than it, some of its sentences (those that exceed their
    best segmentation the most) take the best one instead.

    Args:
        source: the source sentences.
        target: their translations, in the same order.
        tokens: a batch's budget: rows * max(S, T), padding included, is at most this,
            in so far as there are at least `batch_size_multiple` rows.
        max_shapes: how many shapes there may be.
        seed: of the order and of the drawn segmentations.
        pack: several sentences a row; see the module's docstring.
        batch_size_multiple: divisor of the number of rows; a multiple of the devices.

    Raises:
        ValueError: if there are no pairs, or not as many sources as targets.
    """

    def __init__(
        self,
        source: Segmentations,
        target: Segmentations,
        *,
        tokens: int,
        max_shapes: int,
        seed: int,
        pack: bool = False,
        batch_size_multiple: int = 8,
    ):
        if len(source) != len(target) or not len(source):
            raise ValueError(f"{len(source)} sources for {len(target)} targets")
        self._sides, self._seed = (source, target), seed
        # Never under the best length: the best segmentation always fits.
        s, t = (
            np.maximum(np.rint(side.mean_lengths()), side.best_lengths()).astype(int)
            for side in self._sides
        )
        if pack:
            boxes = _row_sizes(s, t, max_shapes)
            rows = _pack(s, t, boxes)
        else:
            boxes = choose_boxes(s, t, max_shapes)
            home, _ = _smallest(np.array(boxes), np.stack([s, t], 1))
            rows = [
                [[int(n)] for n in np.flatnonzero(home == k)] for k in range(len(boxes))
            ]
        unit = batch_size_multiple
        heights = [max(tokens // max(box) // unit, 1) * unit for box in boxes]
        _move_up(rows, boxes, heights)
        filled = [k for k in range(len(boxes)) if rows[k]]
        self._rows = [rows[k] for k in filled]
        self.shapes = [(heights[k], *boxes[k]) for k in filled]
        self._counts = [-(-len(rows[k]) // heights[k]) for k in filled]
        self._plan: tuple[int, list[tuple[int, np.ndarray]]] | None = None

    def __len__(self) -> int:
        """Batches an epoch."""
        return sum(self._counts)

    def __getitem__(self, index: int) -> Batch:
        """The batch of step `index`, for any index from 0."""
        if index < 0:
            raise IndexError(index)
        epoch, place = divmod(index, len(self))
        plan = self._plan  # read once: other threads may replace it
        if plan is None or plan[0] != epoch:
            self._plan = plan = (epoch, self._order(epoch))
        shape, members = plan[1][place]
        height, *widths = self.shapes[shape]
        rng = np.random.default_rng((self._seed, epoch, place))
        rows = [self._rows[shape][r] for r in members]
        return {
            name: _fill(side, rows, height, width, rng)
            for name, side, width in zip(
                ("source", "target"), self._sides, widths, strict=True
            )
        }

    def _order(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        rng = np.random.default_rng((self._seed, epoch))
        batches = []
        for k, count in enumerate(self._counts):
            # array_split spreads the filler rows over the shape's batches.
            order = rng.permutation(len(self._rows[k]))
            batches += [(k, part) for part in np.array_split(order, count)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def padding(self) -> float:
        """Share of PAD among all positions of the first epoch, both sides together."""
        real = size = 0
        for i in range(len(self)):
            for ids in self[i].values():
                real, size = real + np.count_nonzero(ids), size + ids.size
        return 1 - real / size


def _row_sizes(
    source: np.ndarray, target: np.ndarray, count: int
) -> list[tuple[int, int]]:
    """Row sizes for packing: the longest pair's, a half, a quarter and so on of it."""
    ratio = source.sum() / target.sum()
    T = max(target.max(), int(np.ceil(source.max() / ratio)))
    halves = sorted({-(-int(T) // 2**k) for k in range(count)})
    return [(max(int(np.ceil(ratio * h)), 1), h) for h in halves]


def _move_up(
    rows: list[list], boxes: list[tuple[int, int]], heights: list[int]
) -> None:
    """Moves rows that do not fill a batch into a larger box, where that is cheaper."""
    for k, (s, t) in enumerate(boxes):
        rest = len(rows[k]) % heights[k]
        for S, T in boxes[k + 1 :]:
            if rest and S >= s and T >= t:
                if rest * (S + T - s - t) < (heights[k] - rest) * (s + t):
                    rows[boxes.index((S, T))] += rows[k][-rest:]
                    del rows[k][-rest:]
                break


def _fill(
    side: Segmentations,
    rows: list[list[int]],
    height: int,
    width: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """int32 [height, width] of one drawn segmentation a sentence."""
    ids = np.full((height, width), PAD, np.int32)
    drawn = iter(side.draw(np.concatenate(rows), rng))
    for r, row in enumerate(rows):
        chosen = [next(drawn) for _ in row]
        over = sum(side.lengths[c] for c in chosen) - width
        if over > 0:
            best = side.first[row]
            excess = side.lengths[chosen] - side.lengths[best]
            for i in np.argsort(-excess):
                if over <= 0:
                    break
                chosen[i], over = best[i], over - excess[i]
        end = 0
        for c in chosen:
            part = side.ids(c)
            ids[r, end : end + len(part)] = part
            end += len(part)
    return ids


def eval_batches(
    source: Segmentations,
    target: Segmentations,
    *,
    rows: int = 64,
    max_shapes: int = 4,
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Every sentence once, in its best segmentation, one a row, in few shapes.

    Args:
        source: the source sentences.
        target: their translations.
        rows: rows of every batch.
        max_shapes: how many shapes there may be.

    Yields:
        (indices [n], batch): row r < n is sentence indices[r], the rest is filler.
    """
    if not len(source):
        return
    sides = {"source": source, "target": target}
    lengths = [side.best_lengths() for side in sides.values()]
    boxes = choose_boxes(*lengths, max_shapes)
    home, _ = _smallest(np.array(boxes), np.stack(lengths, 1))
    for k, box in enumerate(boxes):
        members = np.flatnonzero(home == k)
        for start in range(0, len(members), rows):
            indices = members[start : start + rows]
            batch = {}
            for (name, side), width in zip(sides.items(), box, strict=True):
                batch[name] = np.full((rows, width), PAD, np.int32)
                for r, n in enumerate(indices):
                    ids = side.ids(side.first[n])
                    batch[name][r, : len(ids)] = ids
            yield indices, batch
