"""Search options of tasks; None keeps the value of `config.evaluation`."""

import dataclasses

from generation.search import Search
from options import Options, option


@dataclasses.dataclass(frozen=True)
class BeamOptions(Options):
    """Flags of eval.py."""

    beam: int | None = option(None, "Beam size; 1 is greedy decoding.")

    def search(self, default: Search) -> Search:
        """Returns the search with these options, checked.

        Args:
            default: the search of `config.evaluation`.

        Raises:
            UserError: for a flag out of range.
        """
        fields = {field.name for field in dataclasses.fields(Search)}
        given = dataclasses.asdict(self).items()
        return default.override(**{n: value for n, value in given if n in fields})


@dataclasses.dataclass(frozen=True)
class NBestOptions(BeamOptions):
    """Flags of predict.py."""

    n_best: int = option(
        1, "Predictions of each line, printed as number, score and text."
    )

    @property
    def ranked(self) -> bool:
        """True if more than one prediction per line is requested."""
        return self.n_best > 1


@dataclasses.dataclass(frozen=True)
class TranslationOptions(BeamOptions):
    """Flags of eval.py for a search with a length penalty."""

    alpha: float | None = option(None, "Exponent of the length penalty.")


@dataclasses.dataclass(frozen=True)
class SamplingOptions(NBestOptions, TranslationOptions):
    """Flags of predict.py for a search that may sample."""

    temperature: float = option(0.0, "Above 0: sample; 1 for the model's own.")
    top_k: int = option(0, "Sample from the k most probable tokens; 0: from all.")
    top_p: float = option(1.0, "Sample from the nucleus of this probability.")
    seed: int = option(0, "Seed of the samples.")
