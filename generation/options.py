"""Command-line options of generation; None selects the value of `config.evaluation`."""

import dataclasses
from typing import Annotated

from base.options import Options
from base.ranges import COUNT, SEED, declared
from generation.search import ALPHA, BEAM, TEMPERATURE, TOP_P, Search


class SeedOptions(Options):
    """Flags of predict.py for tasks that only sample."""

    seed: Annotated[int, SEED] = 0  # random seed of the noise


class BeamOptions(Options):
    """Flags of eval.py for tasks with beam search."""

    beam: Annotated[int | None, BEAM] = None  # beam size; 1 is greedy decoding

    def search(self, default: Search) -> Search:
        """Returns a search with these options, checked.

        Args:
            default: the search of `config.evaluation`, for options that are None.

        Raises:
            UserError: for a flag out of range.
        """
        given = dataclasses.asdict(self)
        fields = declared(Search) & given.keys()
        return default.override(**{name: given[name] for name in fields})


class NBestOptions(BeamOptions):
    """Flags of predict.py for tasks with beam search."""

    # Number of predictions per line; above 1, each is printed as line number, score and
    # text.
    n_best: Annotated[int, BEAM] = 1

    @property
    def ranked(self) -> bool:
        """True if more than one prediction per line is requested."""
        return self.n_best > 1


class TranslationOptions(BeamOptions):
    """Flags of eval.py for beam search with a length penalty."""

    # Exponent of the length penalty; 0 for none.
    alpha: Annotated[float | None, ALPHA] = None


class DrawOptions(Options):
    """Flags of predict.py for the distribution that tokens are sampled from."""

    temperature: Annotated[float, TEMPERATURE] = 0.0  # sampling temperature
    # Sample only from the k most probable tokens; 0 for all.
    top_k: Annotated[int, COUNT] = 0
    # Sample only from the most probable tokens with this total probability.
    top_p: Annotated[float, TOP_P] = 1.0
    # Random seed; the sample of a line depends on it and on the line alone.
    seed: Annotated[int, SEED] = 0


class SamplingOptions(DrawOptions, NBestOptions, TranslationOptions):
    """Flags of predict.py for beam search or sampling."""

    # 0 for beam search, 1 for the model's distribution.
    temperature: Annotated[float, TEMPERATURE] = 0.0
