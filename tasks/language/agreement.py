"""Language modelling of generated sentences with agreement over a distance.

`tasks.language.agreement_data` draws the sentences. The loss is the cross-entropy of
the words. The evaluation is exact: the perplexity of the source is known, and each verb
or closing bracket has one correct form and one controller, whose position is compared
with that of the maximum attention weight.

Works with the language models; see `models.lstm_language`.

Axes: B batch; T tokens; W vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base.errors import UserError
from base.fields import Fields
from base.ranges import BATCH, EXAMPLES, Choice, Range
from base.records import AttentionRecord, records_of
from figures import charts
from tasks.common.batches import EndlessBatches
from tasks.common.objectives import supervised
from tasks.common.text import fold
from tasks.common.vocabulary import PAD, UNK
from tasks.language import agreement_data as agreement
from tasks.language.agreement_data import by_distance
from tasks.language.samples import (
    Continuations,
    Continued,
    LanguageOptions,
    Prompt,
    previous,
    token_nats,
)
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, Prediction, Stacked, Task

_SIZE = Range(1, 200, whole=True)
_VALIDATED = ("perplexity", "optimum", "accuracy", "controller")


class AgreementData(Fields):
    """`config.data`: generated sentences."""

    # Generated language: agreement of verbs with their nouns, or nested brackets.
    language: Annotated[str, Choice(agreement.LANGUAGES)] = "agreement"
    # Maximum number of attractors of a noun, or of pairs of brackets.
    size: Annotated[int, _SIZE] = 4
    batch_size: Annotated[int, BATCH] = 32  # sentences per batch


class AgreementEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    # Sizes of further evaluated sentences, besides that of training.
    sizes: Annotated[tuple[int, ...], _SIZE.each()] = (8,)
    sentences: Annotated[int, EXAMPLES] = 500  # number of sentences per size
    checkpoint: str = "best"


class AgreementConfig(ModelConfig):
    """The config of a language model of generated sentences."""

    data: AgreementData = AgreementData()
    evaluation: AgreementEvaluation = AgreementEvaluation()


class Agreement(Task):
    """Language modelling with exact agreement; see the module docstring."""

    metric = ("perplexity", "min")
    Config = AgreementConfig
    Options = LanguageOptions
    batch_size = 50

    def __init__(self, config: ConfigDict, assets: None = None):
        self.config, self.language = config, config.data.language
        self.words = agreement.LANGUAGES[self.language]
        self.model = checks.build_model(config, vocab_size=self.words.size)
        sizes = config.data.size, *config.evaluation.sizes
        self.sizes = list(dict.fromkeys(sizes))
        self.continuations = Continuations(self.model, self.words)
        tokens = jnp.ones((1, 2), jnp.int32)
        self.objective = supervised(self, tokens)

    def train_data(self) -> EndlessBatches:
        """Returns the training batches; see `tasks.language.agreement_data`."""
        data = self.config.data
        return agreement.batches(
            self.language, data.size, batch_size=data.batch_size, seed=self.config.seed
        )

    def loss(
        self, params: dict, batch: Batch, rng: jax.Array, state: TrainState
    ) -> LossResult:
        """Returns the cross-entropy of the words."""
        tokens = batch["tokens"]
        logits, _ = self.model.apply(
            {"params": params}, previous(tokens), train=True, rngs={"dropout": rng}
        )
        count = (tokens != PAD).sum(dtype=jnp.float32)
        return token_nats(logits, tokens).sum(), (count, {"tokens": (count, count)})

    def examples(self, split: str, *, full: bool = True) -> dict[str, Stacked]:
        """Returns sentences of the training size, and of the other sizes."""
        sizes = self.sizes if full else self.sizes[:1]
        return {str(size): Stacked(self._held_out(split, size)[0]) for size in sizes}

    def _held_out(self, split: str, size: int) -> tuple[Batch, float]:
        count = self.config.evaluation.sentences
        return agreement.held_out(self.language, split, size, count)

    def outputs(self, state: TrainState, batch: Batch, attention: bool) -> Any:
        """Returns nats [B]; [B, T], the top dependent words, and top slots by layer."""
        tokens = batch["tokens"]
        (logits, _), sown = self.model.apply(
            {"params": state.params},
            previous(tokens),
            train=False,
            mutable=["attention"],
        )
        dependent = jnp.array(self.words.dependent)
        best = dependent[logits[..., dependent].argmax(-1)]
        records = records_of(sown, AttentionRecord)
        top = [record.weights.mean(1).argmax(-1) for record in records]
        return token_nats(logits, tokens).sum(-1), best, top

    def answers(
        self,
        state: TrainState,
        examples: Stacked | Sequence[Prompt],
        options: Any = None,
        *,
        attention: bool = False,
    ) -> Sequence[Any]:
        """Returns `outputs` of sentences, and continuations of prompts."""
        if isinstance(examples, Stacked):
            return super().answers(state, examples)
        answer = self.continuations.answer
        return [answer(state.params, x, attention=attention) for x in examples]

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns the scores of sentences of each size.

        Those of the training size: `perplexity`; `optimum`, the perplexity of the
        source; the accuracies of `tasks.language.agreement_data.by_distance`;
        `controller`, the percentage of dependent words whose maximum weight is on the
        controller, in the layer with the highest percentage (words that directly follow
        their controller are left out). Those of another size S end in `_size_S`. During
        training, accuracies by distance are left out.
        """
        scores = {}
        for size, answers in zip(self.sizes, evaluation.answers.values(), strict=False):
            ending = "" if size == self.config.data.size else f"_size_{size}"
            for name, score in self._score(evaluation.split, size, answers).items():
                if evaluation.options is not None or name in _VALIDATED:
                    scores[name + ending] = score
        return scores

    def _score(self, split, size, answers: Stacked) -> dict[str, float]:
        batch, optimum = self._held_out(split, size)
        tokens, controllers = batch["tokens"], batch["controllers"]
        nats, best, top = answers.arrays
        words = (tokens != PAD).sum()
        row, position = np.nonzero(controllers >= 0)
        controller = controllers[row, position]
        correct = best[row, position] == tokens[row, position]
        scores = {
            "perplexity": float(np.exp(nats.sum(dtype=float) / words)),
            "optimum": float(np.exp(optimum / words)),
            **by_distance(correct, position - controller),
        }
        # The word at position c is read in step c + 1, after BOS. When a
        # dependent word is predicted, the word before it is not on the tape yet.
        far = position - controller > 1
        hits = [layer[row, position][far] == controller[far] + 1 for layer in top]
        if hits and far.any():
            scores["controller"] = 100 * max(float(each.mean()) for each in hits)
        return scores

    def picked(self, split: str, count: int) -> dict[str, Prompt]:
        """Returns sentences, to be read; see `Task`."""
        size = self.config.data.size
        batch, _ = agreement.held_out(self.language, split, size, count)
        texts = enumerate(map(self.words.decode, batch["tokens"]), 1)
        return {
            f"{self.language}_{number}": Prompt(text, self.words.encode(text)[:-1])
            for number, text in texts
        }

    def parse(self, line: str, options: LanguageOptions) -> Prompt:
        """Returns a line of words of `tasks.language.agreement_data` as a prompt."""
        ids = self.words.encode(fold(line))[:-1]
        if UNK in ids:
            word = line.split()[ids.index(UNK)]
            raise UserError(
                f"the word {word[:40]!r} is not in the vocabulary of {self.language}"
            )
        return Prompt(line, ids, options)

    def show(self, example: Prompt, answer: Continued) -> Prediction:
        """Returns a text with its continuation; see `Continuations.show`."""
        return self.continuations.show(example, answer, self.language)

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws accuracies by distance."""
        groups = {}
        for name, score in evaluation.scores.items():
            if (last := name.removeprefix("accuracy_")).isdigit():
                first = int(last) // 2 + 1 if last != "2" else 1
                groups[f"accuracy_{first} to {last}"] = score
        title = "distance to the controller in words"
        return charts.accuracies(groups, title, evaluation.split, folder)
