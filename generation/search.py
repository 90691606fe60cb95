"""Search over many inputs, in batches of few shapes to compile few programs.

    generator = Generator(model, forbidden=(PAD, BOS, UNK))
    batches = sequence_batches(sources, 64, extra=50, max_length=256)
    search = Search(beam=4, alpha=0.6).check()
    hypotheses = generator.generate(params, batches, search)

`hypotheses[i]` is the list of hypotheses of input i, best score first.

Axes: B inputs in a batch; R hypotheses in the search; N hypotheses returned; T tokens
of a hypothesis, EOS included; L positions of the output; S source positions.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np

from base import ranges, spread
from base.errors import FieldError
from base.ranges import COUNT, SCALE, Range
from base.records import AttentionRecord, SearchTree
from generation import types
from generation.beam import beam_search
from generation.constraints import Constraint, forbid
from generation.rollout import greedy
from generation.sampling import sample
from generation.types import Carry, Decoded, Step

BEAM = Range(1, 1000, whole=True)  # larger beams run out of memory
ALPHA, OFFSET = Range(0, 10), Range(0, 1000)
TEMPERATURE, TOP_P = Range(0, 1000), Range(0, 1, open_min=True)
_MIN_WIDTH = 16  # of a batch of sequences


@dataclasses.dataclass(frozen=True)
class Search:
    """Options of a search; hashable, so that `jax.jit` takes them as a constant.

    Attributes:
        beam: R, the beam size; 1 is greedy decoding, which has no length penalty.
        alpha: exponent of the length penalty (Wu et al. 2016, eq. 14).
        offset: of the length penalty; see `generation.beam.length_penalty`.
        n_best: N, number of hypotheses per input; at most `beam`, unless sampled.
        temperature: sampling temperature; 0 for beam search.
        top_k: sample from the k most probable tokens only; 0 for all.
        top_p: sample from the fewest tokens with this total probability.
    """

    beam: Annotated[int, BEAM] = 1
    alpha: Annotated[float, ALPHA] = 0.0
    offset: Annotated[float, OFFSET] = 5.0
    n_best: Annotated[int, BEAM] = 1
    temperature: Annotated[float, TEMPERATURE] = 0.0
    top_k: Annotated[int, COUNT] = 0
    top_p: Annotated[float, TOP_P] = 1.0

    @classmethod
    def configured(cls, evaluation: Mapping[str, Any]) -> Self:
        """Returns a search with the fields of `config.evaluation`, checked.

        Raises:
            UserError: for a field out of range.
        """
        names = [name for name in ("beam", "alpha", "offset") if name in evaluation]
        search = cls(**{name: evaluation[name] for name in names})
        return search.check("config.evaluation.")

    def check(self, prefix: str = "") -> Self:
        """Returns these options if they are valid.

        Args:
            prefix: prefix of field names in errors, such as "config.evaluation.".

        Raises:
            UserError: for an option out of range, or one without effect.
        """
        ranges.check(ranges.declared(Search), dataclasses.asdict(self), prefix)
        sampled = self.temperature > 0
        if sampled and self.temperature < SCALE.min:
            accepted = f"0 or at least {SCALE.min:g}"
            raise FieldError(f"{prefix}temperature", self.temperature, accepted)
        if not sampled and self.n_best > self.beam:
            accepted = f"at most the beam size {self.beam}, which --beam sets"
            raise FieldError(f"{prefix}n_best", self.n_best, accepted)
        unused = {} if sampled else {"top_k": 0, "top_p": 1.0}
        for name, neutral in unused.items():
            if (value := getattr(self, name)) != neutral:
                accepted = f"{neutral:g} unless temperature is above 0"
                raise FieldError(f"{prefix}{name}", value, accepted)
        return self

    def override(self, **options: float | None) -> "Search":
        """Returns these options with the given ones replaced unless None, checked.

        Raises:
            UserError: see `check`.
        """
        given: dict[str, Any] = {
            name: value for name, value in options.items() if value is not None
        }
        return dataclasses.replace(self, **given).check()


class Hypothesis(NamedTuple):
    """An output of a search.

    Attributes:
        ids: [T] token ids without BOS and padding; the last is EOS.
        score: log-probability divided by the length penalty.
        weights: [T, S] float32 attention weights at each token, where S is the padded
            width of the decoded batch; None unless requested.
        tree: the beam search of the input; None unless requested, or without a beam.
        records: attention of a teacher-forced pass, see
            `generation.teacher_forced.AttentionReader`; empty unless requested.
    """

    ids: list[int]
    score: float
    weights: np.ndarray | None = None
    tree: SearchTree | None = None
    records: Sequence[AttentionRecord] = ()


class Batch(NamedTuple):
    """Inputs that are decoded together.

    Attributes:
        indices: index of the input in each of the first rows; the other rows are
            filler.
        source: returns a pytree of [B, ...] arrays, as the model's `encode` takes it.
        length: L, the maximum number of tokens, EOS included; static.
        limit: [B] int, maximum number of tokens of each input; None for L.
    """

    indices: Sequence[int]
    source: Callable[[], Any]
    length: int
    limit: np.ndarray | None = None


class Model(types.Module, Protocol):
    """A Flax module with methods `encode`, `start` and `step`.

    `encode(source) -> memory`; `start(memory, R, L) -> Carry`;
    `step(carry, token [B, R], memory) -> (carry, logits [B, R, W], weights)`, where
    `weights` are attention weights [B, R, S], or None.
    """


class Generator:
    """Search for the outputs of a model; compiled once per shape and `Search`."""

    def __init__(
        self,
        model: Model,
        *,
        forbidden: Collection[int] = (),
        constrain: Constraint | None = None,
        bos: int = 1,
        eos: int = 2,
        pad: int = 0,
    ):
        """Stores the arguments; compiles on first use.

        Args:
            model: see `Model`.
            forbidden: ids that are never generated.
            constrain: wraps the step, after `forbidden`; see `Constraint`.
            bos: the first input token.
            eos: the id that ends a hypothesis.
            pad: the id after `eos` in `Decoded`.
        """
        self._model, self._forbidden, self._constrain = model, forbidden, constrain
        self._special = {"bos": bos, "eos": eos, "pad": pad}
        self.decode = jax.jit(
            self._decode,
            static_argnames=("search", "length", "keep_weights", "keep_tree"),
        )

    def generate(
        self,
        params: Any,
        batches: Iterable[Batch],
        search: Search,
        *,
        seeds: Sequence[int] = (),
        keep_weights: bool = False,
        keep_tree: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Searches for the hypotheses of each input.

        Args:
            params: the model's parameters.
            batches: together their indices are 0, 1, ..., each once, in any order.
            search: checked options.
            seeds: of each input, for sampling; see `generation.sampling.line_seed`.
            keep_weights: whether to return attention weights.
            keep_tree: whether to return the tree of a beam search.
            progress: called after each batch with the number of inputs up to it.

        Returns:
            The hypotheses of each input, best score first: at most `search.n_best`.

        Raises:
            UserError: for an input without a hypothesis of a finite score.
            ValueError: if attention is requested and the model has none.
        """
        done = 0

        def counted() -> Iterator[Batch]:
            nonlocal done
            for batch in batches:
                done += len(batch.indices)
                yield batch

        def decode(batch: Batch) -> list[tuple[int, list[tuple], SearchTree | None]]:
            source = batch.source()
            drawn = [seeds[i] for i in batch.indices] if seeds else [0]
            decoded = self.decode(
                params,
                source,
                search,
                length=batch.length,
                limit=batch.limit,
                seeds=np.resize(np.array(drawn, np.uint32), _batch_size(source)),
                keep_weights=keep_weights,
                keep_tree=keep_tree,
            )
            decoded = jax.device_get(decoded)
            if progress is not None:
                progress(done)
            return [
                (index, decoded.hypotheses(row), decoded.search_tree(row))
                for row, index in enumerate(batch.indices)
            ]

        results: dict[int, list[Hypothesis]] = {}
        for part in spread.each(decode, counted()):
            for index, hypotheses, tree in part:
                search_tree = None if tree is None else SearchTree(*tree)
                results[index] = [
                    Hypothesis(ids, score, weights, search_tree)
                    for ids, score, weights in hypotheses
                ]
        return [results[index] for index in range(len(results))]

    def attends(self, params: Any, source: Any) -> bool:
        """Returns True if the model's step has attention weights.

        Args:
            params: the model's parameters, or their shapes.
            source: a pytree of [B, ...] arrays, or their shapes.
        """

        def weights(params, source):
            step, carry = self._start(params, source, 1, 1)
            return step(carry, jnp.zeros((_batch_size(source), 1), jnp.int32))[2]

        return jax.eval_shape(weights, params, source) is not None

    def _decode(
        self,
        params: Any,
        source: Any,
        search: Search,
        *,
        length: int,
        limit: jax.Array | None = None,
        seeds: Any = None,
        keep_weights: bool = False,
        keep_tree: bool = False,
    ) -> Decoded:
        """Decodes one batch to [B, N] hypotheses; `decode` is its jitted form.

        `length` and `limit` are those of a `Batch`, `seeds` are uint32 [B], and the
        others as in `generate`.
        """
        sampled = search.temperature > 0
        rows = search.n_best if sampled else search.beam
        step, carry = self._start(params, source, rows, length)
        options: dict[str, Any] = dict(
            batch=_batch_size(source),
            max_length=length,
            limit=limit,
            keep_weights=keep_weights,
            **self._special,
        )
        if sampled:
            return sample(
                step,
                carry,
                seeds,
                temperature=search.temperature,
                top_k=search.top_k,
                top_p=search.top_p,
                samples=search.n_best,
                **options,
            )
        if search.beam == 1:
            return greedy(step, carry, **options)
        return beam_search(
            step,
            carry,
            beam=search.beam,
            alpha=search.alpha,
            offset=search.offset,
            n_best=search.n_best,
            keep_tree=keep_tree,
            **options,
        )

    def _start(
        self, params: Any, source: Any, rows: int, length: int
    ) -> tuple[Step, Carry]:
        """The constrained step and the carry of [B, rows] before the first token."""
        model, variables = self._model, {"params": params}
        memory = model.apply(variables, source, method="encode")

        def step(carry, token):
            return model.apply(variables, carry, token, memory, method="step")

        carry = model.apply(variables, memory, rows, length, method="start")
        if self._forbidden:
            step = forbid(step, self._forbidden)
        if self._constrain is not None:
            return self._constrain(step, carry, source, rows)
        return step, carry


def _batch_size(source: Any) -> int:
    return jax.tree.leaves(source)[0].shape[0]


def array_batches(
    count: int,
    batch_size: int,
    source: Callable[[range], Any],
    *,
    length: int,
    limit: Callable[[int], int] | None = None,
) -> Iterator[Batch]:
    """Yields batches of inputs of one shape, in order.

    The last batch is filled up with its last input, so that all have the same shape.

    Args:
        count: number of inputs.
        batch_size: maximum of B; fewer inputs form one batch.
        source: (indices) -> a pytree of [len(indices), ...] arrays, called for a batch
            when it is decoded.
        length: L, the maximum number of tokens of an output, EOS included.
        limit: (index) -> maximum number of tokens of that input; None for L.
    """
    batch_size = min(batch_size, count)
    for start in range(0, count, max(batch_size, 1)):
        indices = range(start, min(start + batch_size, count))
        filled = np.minimum(np.arange(batch_size), len(indices) - 1)
        limits = None
        if limit is not None:
            limits = np.array([limit(i) for i in indices], np.int32)[filled]

        def arrays(indices: range = indices, filled: np.ndarray = filled) -> Any:
            return jax.tree.map(lambda x: x[filled], source(indices))

        yield Batch(indices, arrays, length, limits)


def sequence_batches(
    sequences: Sequence[Sequence[int]],
    batch_size: int,
    *,
    extra: int,
    max_length: int,
) -> Iterator[Batch]:
    """Yields batches of token sequences in few shapes, shortest sequences first.

    The width of a batch is a power of two, so that few programs are compiled; id 0 is
    padding. An output has at most `extra` tokens more than its source, EOS included;
    filler rows end after one token.

    Args:
        sequences: ids of each input, EOS included if the model expects it.
        batch_size: maximum of B; with fewer sequences B is a power of two.
        extra: maximum number of tokens by which an output exceeds its source.
        max_length: maximum number of tokens of any output, EOS included.
    """
    batch_size = min(batch_size, 1 << max(len(sequences) - 1, 0).bit_length())
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    for width, group in itertools.groupby(
        order, lambda i: padded_width(len(sequences[i]))
    ):
        same_width = list(group)
        for start in range(0, len(same_width), batch_size):
            indices = same_width[start : start + batch_size]
            rows, shape = [sequences[i] for i in indices], (batch_size, width)
            limit = np.ones(batch_size, np.int32)
            limit[: len(rows)] = [min(len(x) + extra, max_length) for x in rows]
            source = functools.partial(_padded, rows, shape)
            yield Batch(indices, source, min(width + extra, max_length), limit)


def _padded(rows: Sequence[Sequence[int]], shape: tuple[int, int]) -> np.ndarray:
    source = np.zeros(shape, np.int32)
    for row, sequence in enumerate(rows):
        source[row, : len(sequence)] = sequence
    return source


def padded_width(length: int) -> int:
    """Returns the padded width of a sequence: a power of two, at least 16."""
    return max(_MIN_WIDTH, 1 << (length - 1).bit_length())
