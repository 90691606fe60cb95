"""Search for texts: detokenised hypotheses without duplicates."""

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from base.records import SearchTree
from generation.search import Generator, Hypothesis, Model, Search, sequence_batches


class Text(NamedTuple):
    """A text, its token ids (EOS included), its score and its search, if requested."""

    text: str
    ids: list[int]
    score: float
    tree: SearchTree | None = None


class TextSearch:
    """Search for output texts: a `Generator` and a detokeniser."""

    def __init__(
        self,
        model: Model,
        decode: Callable[[Sequence[int]], str],
        *,
        forbidden: Collection[int],
        batch_size: int,
        extra: int,
        max_length: int,
    ):
        """Stores the arguments; compiles on first use.

        Args:
            model: see `Model`.
            decode: (ids) -> text; different ids may give the same text.
            forbidden: ids that are never generated.
            batch_size: see `sequence_batches`.
            extra: see `sequence_batches`.
            max_length: see `sequence_batches`.
        """
        self.generator = Generator(model, forbidden=forbidden)
        self._decode, self._batch_size = decode, batch_size
        self._lengths = {"extra": extra, "max_length": max_length}

    def texts(
        self,
        params: Any,
        sources: Sequence[Sequence[int]],
        search: Search,
        *,
        seeds: Sequence[int] = (),
        keep_tree: bool = False,
        report: bool = False,
    ) -> list[list[Text]]:
        """Returns the texts of each source, best first: at most `search.n_best`.

        Beam search returns different texts; samples may be equal.

        Args:
            params: the model's parameters.
            sources: ids of each source, EOS included.
            search: checked options.
            seeds: for sampling only: the seed of each source; see `Generator.generate`.
            keep_tree: whether to return the tree of a beam search.
            report: whether to print the number of decoded sentences after each batch,
                on standard error, where there are more sources than a batch takes.
        """

        def progress(done: int) -> None:
            print(f"{done} of {total} sentences", file=sys.stderr)

        total = len(sources)
        distinct, n_best = search.temperature == 0, search.n_best
        if distinct and n_best > 1:  # duplicates will be dropped
            search = search.override(n_best=search.beam)
        hypotheses = self.generator.generate(
            params,
            sequence_batches(sources, self._batch_size, **self._lengths),
            search,
            seeds=seeds,
            keep_tree=keep_tree,
            progress=progress if report and total > self._batch_size else None,
        )
        return [self._texts(ranked, distinct)[:n_best] for ranked in hypotheses]

    def _texts(self, hypotheses: Sequence[Hypothesis], distinct: bool) -> list[Text]:
        texts = [Text(self._decode(x.ids), *x[:2], x.tree) for x in hypotheses]
        if not distinct:
            return texts
        best: dict[str, Text] = {}
        for each in texts:
            best.setdefault(each.text, each)
        return list(best.values())
