"""Language modelling of generated sentences with agreement over a distance.

`tasks.language.agreement_data` draws the sentences. The loss is the cross-entropy of
the words. The evaluation is exact: the perplexity of the source is known, and each verb
or closing bracket has one correct form and one controller, whose position is compared
with that of the maximum attention weight.

Works with the models of `models.language`.

Axes: B batch; T tokens; W vocabulary.
"""

from collections.abc import Iterable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base import spread
from base.errors import UserError
from base.ranges import BATCH, EXAMPLES, TEXT, Range
from base.records import AttentionRecord, collect
from figures import charts
from generation.sampling import line_seed
from tasks.common.text import fold
from tasks.common.vocabulary import BOS, PAD, UNK
from tasks.language import agreement_data as agreement
from tasks.language.agreement_metrics import by_distance
from tasks.language.samples import (
    Continuations,
    LanguageOptions,
    draw_text,
    previous,
    token_nats,
)
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, Lines, NoOptions, Prediction, Task

_SIZE = Range(1, 200, whole=True)
_BATCH = 50  # sentences evaluated at a time
_FIGURES = 3
_VALIDATED = ("perplexity", "optimum", "accuracy", "controller")


class Agreement(Task):
    """Language modelling with exact agreement; see the module docstring."""

    metric = ("perplexity", "min")
    ranges = {
        **checks.SUPERVISED,
        "data.language": TEXT,
        "data.size": _SIZE,
        "data.batch_size": BATCH,
        "evaluation.sizes": _SIZE.each(),
        "evaluation.sentences": EXAMPLES,
    }
    arrays = {  # the states of a tape, and the hidden layer of the additive score
        ("data.batch_size", "data.size", "model.hidden"): 24,
        ("data.batch_size", "model.memory", "model.score_hidden"): 4,
    }
    model_methods = ("start",)
    Options = LanguageOptions

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks the language; see `Task`."""
        checks.choice("data.language", config.data.language, agreement.LANGUAGES)

    def __init__(
        self, config: ConfigDict, assets: None = None, *, axis_name: str | None = None
    ):
        """Builds the model and the objective; see `Task`."""
        self.config, self.language = config, config.data.language
        self.words = agreement.vocabulary(self.language)
        self.model = checks.build_model(
            config.architecture, config.model, vocab_size=self.words.size
        )
        sizes = config.data.size, *config.evaluation.sizes
        self.sizes = list(dict.fromkeys(sizes))
        self.answer = jax.jit(self._answer)
        self.continuations = Continuations(self.model, self.words)
        tokens = jnp.ones((1, 2), jnp.int32)
        self.objective = Supervised(
            lambda rng: self.model.init(rng, tokens, train=False)["params"],
            self.loss,
            make_optimizer(config),
            axis_name=axis_name,
        )

    def train_data(self) -> agreement.Batches:
        """Returns the training batches; see `tasks.language.agreement_data`."""
        data = self.config.data
        return agreement.Batches(
            self.language,
            data.size,
            batch_size=data.batch_size,
            seed=self.config.seed,
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

    def _answer(self, params, tokens):
        """Sum of nats; top dependent words; by layer, steps of the maximum weight."""
        (logits, _), sown = self.model.apply(
            {"params": params}, previous(tokens), train=False, mutable=["attention"]
        )
        dependent = jnp.array(self.words.dependent)
        best = dependent[logits[..., dependent].argmax(-1)]
        records = collect(sown, AttentionRecord)
        top = [record.weights.mean(1).argmax(-1) for record in records]  # [B, T]
        return token_nats(logits, tokens).sum(), best, top

    def evaluate(self, state: TrainState, split: str, options: NoOptions) -> Evaluation:
        """Evaluates sentences of each size; see `Task`.

        Returns:
            Scores of the training size: `perplexity`; `optimum`, the perplexity of the
            source; the accuracies of `tasks.language.agreement_metrics.by_distance`;
            `controller`, the percentage of dependent words whose maximum weight is on
            the controller, in the layer with the highest percentage (words that
            directly follow their controller are left out). Those of another size S end
            in `_size_S`.
        """
        scores = {}
        for size in self.sizes:
            ending = "" if size == self.config.data.size else f"_size_{size}"
            for name, score in self._evaluate(state.params, split, size).items():
                scores[name + ending] = score
        return Evaluation(split, scores)

    def validate(self, state: TrainState) -> Scores:
        """Returns the scores of the training size, without those by distance."""
        scores = self._evaluate(state.params, "validation", self.config.data.size)
        return {name: x for name, x in scores.items() if name in _VALIDATED}

    def _evaluate(self, params, split, size) -> dict[str, float]:
        count = self.config.evaluation.sentences
        batch, optimum = agreement.held_out(self.language, split, size, count)
        tokens, controllers = batch["tokens"], batch["controllers"]

        def part(start: int):
            answer = self.answer(params, tokens[start : start + _BATCH])
            return jax.device_get(answer)

        nats, best, top = zip(*spread.each(part, range(0, count, _BATCH)), strict=True)
        words = (tokens != PAD).sum()
        row, position = np.nonzero(controllers >= 0)
        controller = controllers[row, position]
        correct = np.concatenate(best)[row, position] == tokens[row, position]
        scores = {
            "perplexity": float(np.exp(sum(nats) / words)),
            "optimum": float(np.exp(optimum / words)),
            **by_distance(correct, position - controller),
        }
        # The word at position c is read in step c + 1, after BOS. When a
        # dependent word is predicted, the word before it is not on the tape yet.
        far = position - controller > 1
        hits = [
            np.concatenate(layer)[row, position][far] == controller[far] + 1
            for layer in zip(*top, strict=True)
        ]
        if hits and far.any():
            scores["controller"] = 100 * max(float(each.mean()) for each in hits)
        return scores

    def can_draw(self) -> bool:
        """Returns whether the model has attention."""
        return self.model.attends

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws accuracies by distance, and the attention of sentences; see `Task`."""
        split, paths = evaluation.split, []
        groups = {}
        for name, score in evaluation.scores.items():
            if (last := name.removeprefix("accuracy_")).isdigit():
                first = int(last) // 2 + 1 if last != "2" else 1
                groups[f"{first} to {last}"] = score
        if groups:
            path = folder / f"accuracy_{split}.png"
            title = f"Accuracy by distance to the controller ({split} split)"
            names = {"axis_title": "distance in words", "value_title": "% correct"}
            paths.append(charts.bars(groups, title, path, maximum=100, **names))
        if self.can_draw():
            size = self.config.data.size
            batch, _ = agreement.held_out(self.language, split, size, _FIGURES)
            for number, row in enumerate(batch["tokens"], 1):
                ids = [BOS, *self.words.encode(self.words.decode(row))[:-1]]
                maps = self.continuations.attention(state.params, ids)
                title = f"{self.language}, sentence {number} ({split} split)"
                path = folder / f"{self.language}_{number}_{split}.png"
                paths.append(draw_text(maps, title, path))
        return paths

    def predict(
        self,
        state: TrainState,
        lines: Lines,
        options: LanguageOptions,
        attention: bool,
    ) -> Iterable[Prediction]:
        """Yields each line with a sampled continuation; see `Task`.

        Lines have words of `tasks.language.agreement_data`, separated by spaces. The
        score is the log-probability of the continuation.
        """
        encoded = {number: self._encode(x, number) for number, x in lines.items()}
        for number, ids in encoded.items():
            yield self.continuations.predict(
                state.params,
                ids,
                options,
                seed=line_seed(options.seed, lines[number]),
                attention=attention,
            )

    def _encode(self, text: str, number: int) -> list[int]:
        """Ids of the words of a line, without EOS."""
        ids = self.words.encode(fold(text))[:-1]
        if UNK in ids:
            word = text.split()[ids.index(UNK)]
            raise UserError(
                f"line {number} has the word {word[:40]!r}, which is not in the "
                f"vocabulary of {self.language}"
            )
        return ids

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the attention of a text; see `Task`."""
        return draw_text(prediction.attention, f"{title}: {self.language}", path)
