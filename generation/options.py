"""Command-line options of generation; None selects the value of `config.evaluation`."""

import dataclasses
from typing import Any

from base.options import Options, option
from base.ranges import SEED, declared
from generation.search import Search

_RANGES = declared(Search)


def _searched(name: str, default: Any, text: str) -> Any:
    """An option that replaces the field of this name of a `Search`."""
    return option(default, text, _RANGES[name])


class SeedOptions(Options):
    """Flags of predict.py for tasks that only sample."""

    seed: int = option(0, "Random seed of the noise.", SEED)


class BeamOptions(Options):
    """Flags of eval.py for tasks with beam search."""

    beam: int | None = _searched("beam", None, "Beam size; 1 is greedy decoding.")

    def search(self, default: Search) -> Search:
        """Returns a search with these options, checked.

        Args:
            default: the search of `config.evaluation`, for options that are None.

        Raises:
            UserError: for a flag out of range.
        """
        given = dataclasses.asdict(self)
        return default.override(
            **{name: given[name] for name in _RANGES & given.keys()}
        )


class NBestOptions(BeamOptions):
    """Flags of predict.py for tasks with beam search."""

    n_best: int = _searched(
        "n_best",
        1,
        "Number of predictions per line; above 1 each is printed as line number, score "
        "and text.",
    )

    @property
    def ranked(self) -> bool:
        """True if more than one prediction per line is requested."""
        return self.n_best > 1


class TranslationOptions(BeamOptions):
    """Flags of eval.py for beam search with a length penalty."""

    alpha: float | None = _searched(
        "alpha", None, "Exponent of the length penalty; 0 for none."
    )


class DrawOptions(Options):
    """Flags of predict.py for the distribution that tokens are sampled from."""

    temperature: float = _searched(
        "temperature",
        0.0,
        "Sampling temperature; 0 for beam search, 1 for the model's distribution.",
    )
    top_k: int = _searched(
        "top_k", 0, "Sample only from the k most probable tokens; 0 for all."
    )
    top_p: float = _searched(
        "top_p",
        1.0,
        "Sample only from the most probable tokens with this total probability.",
    )
    seed: int = option(
        0,
        "Random seed; the sample of a line depends on it and on the line alone.",
        SEED,
    )


class SamplingOptions(DrawOptions, NBestOptions, TranslationOptions):
    """Flags of predict.py for beam search or sampling."""
