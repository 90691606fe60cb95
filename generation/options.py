"""Command-line options of generation; None selects the value of `config.evaluation`."""

import dataclasses

from base.options import Options, option
from base.ranges import SEED, declared
from generation.search import Search

_RANGES = declared(Search)


@dataclasses.dataclass(frozen=True)
class SeedOptions(Options):
    """Flags of predict.py for tasks that only sample."""

    seed: int = option(0, "Random seed of the noise.", SEED)


@dataclasses.dataclass(frozen=True)
class BeamOptions(Options):
    """Flags of eval.py for tasks with beam search."""

    beam: int | None = option(None, "Beam size; 1 is greedy decoding.", _RANGES["beam"])

    def search(self, default: Search) -> Search:
        """Returns a search with these options, checked.

        Args:
            default: the search of `config.evaluation`, for options that are None.

        Raises:
            UserError: for a flag out of range.
        """
        fields = {field.name for field in dataclasses.fields(Search)}
        given = dataclasses.asdict(self).items()
        return default.override(**{n: value for n, value in given if n in fields})


@dataclasses.dataclass(frozen=True)
class NBestOptions(BeamOptions):
    """Flags of predict.py for tasks with beam search."""

    n_best: int = option(
        1,
        "Number of predictions per line; above 1 each is printed as line number, score "
        "and text.",
        _RANGES["n_best"],
    )

    @property
    def ranked(self) -> bool:
        """True if more than one prediction per line is requested."""
        return self.n_best > 1


@dataclasses.dataclass(frozen=True)
class TranslationOptions(BeamOptions):
    """Flags of eval.py for beam search with a length penalty."""

    alpha: float | None = option(
        None, "Exponent of the length penalty; 0 for none.", _RANGES["alpha"]
    )


@dataclasses.dataclass(frozen=True)
class DrawOptions(Options):
    """Flags of predict.py for the distribution that tokens are sampled from."""

    temperature: float = option(
        0.0,
        "Sampling temperature; 0 for beam search, 1 for the model's distribution.",
        _RANGES["temperature"],
    )
    top_k: int = option(
        0,
        "Sample only from the k most probable tokens; 0 for all.",
        _RANGES["top_k"],
    )
    top_p: float = option(
        1.0,
        "Sample only from the most probable tokens with this total probability.",
        _RANGES["top_p"],
    )
    seed: int = option(
        0,
        "Random seed; the sample of a line depends on it and on the line alone.",
        SEED,
    )


@dataclasses.dataclass(frozen=True)
class SamplingOptions(DrawOptions, NBestOptions, TranslationOptions):
    """Flags of predict.py for beam search or sampling."""
