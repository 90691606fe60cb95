"""Rescoring of a beam with a character language model: Chan et al. (2016), section 3.4.

The hypotheses y of an utterance x are ranked by log P(y|x) / |y| + lambda log P_LM(y),
eq. 14. The language model is a run of `tasks.language.text_modeling` with
`data.pieces=char`.

Axes: B texts; T characters.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from base import spread
from base.errors import FieldError, UserError
from base.ranges import WEIGHT
from generation.options import SamplingOptions
from generation.search import Hypothesis, padded_width
from tasks.common.batches import pad
from tasks.common.vocabulary import EOS, PAD, UNK
from tasks.language.samples import token_nats
from tasks.language.text_data import normal_lines
from tasks.language.text_modeling import TextModeling
from training import trained

_FIELD = "config.evaluation.language_model"
_ACCEPTED = "the folder of a run of TextModeling with config.data.pieces=char"
_NAMED = 8  # missing characters that an error lists, at most


class CharacterLanguageModel:
    """The character language model of a run.

    Args:
        folder: the run directory.
        characters: characters that the language model must know.
        batch_size: number of texts that are read together.
        field: name of the field or flag, for errors.

    Raises:
        UserError: if the folder is not such a run, or characters are missing.
    """

    def __init__(
        self, folder: str, characters: str, *, batch_size: int, field: str = _FIELD
    ):
        if not Path(folder).is_dir():
            raise FieldError(field, folder, _ACCEPTED)
        try:
            run = trained.load(folder)
        except UserError as error:
            raise UserError(f"{field} is {folder!r}: {error}") from error
        if not isinstance(run.task, TextModeling):
            accepted = f"{_ACCEPTED}, not of {type(run.task).__name__}"
            raise FieldError(field, folder, accepted)
        if (pieces := run.config.data.pieces) != "char":
            raise FieldError(field, folder, f"{_ACCEPTED}, not {pieces}")
        self._vocabulary = run.task.texts.vocabulary
        unknown = [x for x in characters if UNK in self._vocabulary.encode(x)]
        if unknown:
            names = ", ".join(map(repr, unknown[:_NAMED]))
            names += ", ..." if len(unknown) > _NAMED else ""
            raise UserError(
                f"{field} is {folder!r}: lacks the characters {names} of the "
                "transcripts"
            )
        self._model, self._params = run.task.model, run.state.params
        self._batch_size, self._log_probs = batch_size, jax.jit(self._sums)

    def log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the log-probabilities of texts as whole lines: float64 [B], in nats.

        Texts are normalised like the training text, read after an end of line, and
        include their own.
        """
        lines = {text: " ".join(normal_lines(text)) for text in texts}
        unique = sorted(set(lines.values()), key=lambda x: (len(x), x))

        def batch_log_probs(batch: dict[str, np.ndarray]) -> list[float]:
            return np.asarray(self._log_probs(self._params, batch)).tolist()

        parts = spread.each(batch_log_probs, self._batches(unique))
        values = dict(zip(unique, sum(parts, []), strict=False))  # without filler rows
        return np.array([values[lines[text]] for text in texts])

    def _batches(self, lines: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """Batches of equal size; the last one is filled up with empty rows."""
        size = self._batch_size
        for start in range(0, len(lines), size):
            rows = [self._vocabulary.encode(x) for x in lines[start : start + size]]
            width = padded_width(max(map(len, rows)))
            filler = [[]] * (size - len(rows))
            before = [[EOS, *ids[:-1]] for ids in rows]
            parts = {"tokens": rows, "before": before}.items()
            yield {name: pad(x + filler, width, fill=PAD) for name, x in parts}

    def _sums(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """Log-probabilities [B] of tokens [B, T]."""
        logits, _ = self._model.apply(
            {"params": params},
            batch["before"],
            self._model.start(len(batch["before"])),
            train=False,
        )
        return -token_nats(logits, batch["tokens"]).sum(1)


class Rescoring(NamedTuple):
    """Adds the log-probabilities of a language model to the scores of hypotheses.

    Their weight is lambda of eq. 14.
    """

    language_model: CharacterLanguageModel
    weight: float

    def rank(
        self,
        hypotheses: Sequence[Sequence[Hypothesis]],
        text: Callable[[Sequence[int]], str],
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each input with their new scores, best first.

        `text` returns the text of the ids of a hypothesis.
        """
        texts = [text(x.ids) for group in hypotheses for x in group]
        log_probs = iter(self.language_model.log_probs(texts).tolist())
        rescored = [
            [x._replace(score=x.score + self.weight * next(log_probs)) for x in group]
            for group in hypotheses
        ]
        return [sorted(group, key=lambda x: -x.score) for group in rescored]


def configured(evaluation: ConfigDict, characters: str) -> Rescoring | None:
    """Returns the rescoring of `config.evaluation`; None without a language model.

    Raises:
        UserError: see `CharacterLanguageModel`.
    """
    folder, weight = evaluation.language_model, evaluation.language_model_weight
    if not folder:
        return None
    size = evaluation.batch_size
    model = CharacterLanguageModel(folder, characters, batch_size=size)
    return Rescoring(model, weight)


class TranscriptOptions(SamplingOptions):
    """Flags of predict.py for speech recognisers."""

    # Run directory of a character language model, which rescores the beam.
    language_model: str | None = None
    # Weight of the language model.
    language_model_weight: Annotated[float | None, WEIGHT] = None

    def rescoring(
        self, default: Rescoring | None, evaluation: ConfigDict, characters: str
    ) -> Rescoring | None:
        """Returns the rescoring of these flags; None without a language model.

        `default`, that of `evaluation`, has the flags that are not given.

        Raises:
            UserError: see `CharacterLanguageModel`.
        """
        if self.language_model is not None:
            model = CharacterLanguageModel(
                self.language_model,
                characters,
                batch_size=evaluation.batch_size,
                field="language_model",
            )
            default = Rescoring(model, evaluation.language_model_weight)
        if self.language_model_weight is None:
            return default
        if default is None:
            accepted = "left out without a language model; --language_model adds one"
            raise FieldError(
                "language_model_weight", self.language_model_weight, accepted
            )
        return default._replace(weight=self.language_model_weight)
