"""Language modelling of running text, with truncated back-propagation through time.

`tasks.language.text_data` reads the text. The state after a batch is carried to the
next one, in `TrainState.extra`, without its gradient (Mikolov et al. 2010). Perplexity
is exact over the whole split: `perplexity` is per token of the vocabulary,
`word_perplexity` per word, which makes vocabularies of words and of subwords
comparable.

Works with the language models; see `models.lstm_language`.

Axes: B batch; T tokens; W vocabulary.
"""

import dataclasses
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base.errors import FieldError
from base.fields import Fields, Files, unread
from base.ranges import BATCH, SIZE, VOCABULARY, Choice, Range
from figures.attention import piece_labels
from tasks.common.batches import EndlessBatches
from tasks.common.objectives import supervised
from tasks.common.vocabulary import UNK
from tasks.language import text_data as running_text
from tasks.language.samples import (
    Continuations,
    Continued,
    LanguageOptions,
    Prompt,
    token_nats,
)
from tasks.language.text_data import Texts
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.objective import Supervised
from training.state import Batch, LossResult, Metrics, Scores, TrainState
from training.task import Evaluation, Prediction, Task

_LEGIBLE = range(5, 25)  # tokens of a line in a figure


class Truncated(Supervised):
    """Objective that carries the model's state from batch to batch, in `extra`."""

    def step(
        self, state: TrainState, batch: Batch, rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """Takes one step; rows that begin a text start from the initial state."""

        def begin(carried: jax.Array, start: jax.Array) -> jax.Array:
            first = batch["first"].reshape(-1, *[1] * (carried.ndim - 1))
            return jnp.where(first, start, carried)

        carry = jax.tree.map(begin, state.extra, self.extra)
        state = dataclasses.replace(state, extra=carry)
        state, metrics = super().step(state, batch, rng)
        return dataclasses.replace(state, extra=metrics.pop("carry")), metrics


class TextModelingData(Fields):
    """`config.data`: running text."""

    source: Annotated[str, Choice(running_text.SOURCES)] = (
        "speeches"  # source of the text
    )
    files: Files = Files()
    # Maximum number of words for training, the last ones of the text.
    train_words: Annotated[int, Range(1, 10**9, whole=True)] = 400_000
    # Unit of a token: a word, a subword ("unigram") or a character.
    pieces: Literal["word", "unigram", "char"] = "word"
    # Maximum size of the vocabulary; 10,000 in the paper.
    vocab_size: Annotated[int, VOCABULARY] = 5000
    tokens: Annotated[int, SIZE] = 32  # sequence length, in tokens
    # Sequences per batch; 40 in the paper.
    batch_size: Annotated[int, BATCH] = 40

    def __post_init__(self):
        if self.source != "files":
            unread("files", self.files, "config.data.source=files")


class TextModelingEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    # Number of parts of the text that are read in parallel.
    batch_size: Annotated[int, BATCH] = 20
    checkpoint: str = "best"


class TextModelingConfig(ModelConfig):
    """The config of a language model of running text."""

    data: TextModelingData = TextModelingData()
    evaluation: TextModelingEvaluation = TextModelingEvaluation()

    def __post_init__(self):
        super().__post_init__()
        if self.parallel != "jit":
            accepted = "jit, as the state is carried from batch to batch"
            raise FieldError("parallel", self.parallel, accepted)


class TextModeling(Task):
    """Language modelling of running text; see the module docstring."""

    metric = ("perplexity", "min")
    Config = TextModelingConfig
    Options = LanguageOptions

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Texts:
        """Returns the vocabulary and the texts; see `Task`."""
        data, folder = config.data, workdir / "assets"
        if not training:
            return running_text.load(folder)
        splits = running_text.read(data.source, data.files.to_dict())
        texts = running_text.create(
            splits,
            folder,
            words=data.train_words,
            vocab_size=data.vocab_size,
            pieces=data.pieces,
        )
        if jax.process_index() == 0:
            line = (
                f"data: {len(texts.train):,} training tokens, "
                f"{texts.vocabulary.size} pieces"
            )
            if texts.left_out:
                line += (
                    f"; left out: the first {texts.left_out:,} lines, over "
                    f"config.data.train_words={data.train_words}"
                )
            print(line, file=sys.stderr)
        return texts

    def __init__(self, config: ConfigDict, assets: Texts):
        self.config, self.texts = config, assets
        vocabulary = assets.vocabulary
        self.model = checks.build_model(config, vocab_size=vocabulary.size)
        self.continuations = Continuations(self.model, vocabulary, piece_labels)
        self.read = jax.jit(self._read)
        tokens = jnp.ones((1, 2), jnp.int32)
        carry = self.model.start(config.data.batch_size)
        self.objective = supervised(self, tokens, kind=Truncated, extra=carry)

    def train_data(self) -> EndlessBatches:
        """Returns the training batches; see `tasks.language.text_data`."""
        data = self.config.data
        return running_text.batches(
            self.texts.train,
            batch_size=data.batch_size,
            tokens=data.tokens,
            seed=self.config.seed,
        )

    def loss(
        self, params: Any, batch: Batch, rng: jax.Array, state: TrainState
    ) -> LossResult:
        """Returns the cross-entropy of the tokens, and the carry as a metric."""
        logits, carry = self.model.apply(
            {"params": params},
            batch["before"],
            state.extra,
            train=True,
            rngs={"dropout": rng},
        )
        count = jnp.asarray(batch["tokens"].size, jnp.float32)
        metrics = {"tokens": (count, count), "carry": carry}
        return token_nats(logits, batch["tokens"]).sum(), (count, metrics)

    def _read(self, params, carry, batch):
        """Sum of the nats of a part of a text, and the carry."""
        logits, carry = self.model.apply(
            {"params": params}, batch["before"], carry, train=False
        )
        return token_nats(logits, batch["tokens"]).sum(), carry

    def examples(self, split: str, *, full: bool = True) -> dict[str, list[np.ndarray]]:
        """Returns the ids of the whole split, as one text."""
        lines = self.texts.lines(split)
        return {split: [running_text.stream(self.texts.vocabulary, lines)]}

    def answers(
        self,
        state: TrainState,
        examples: Sequence[np.ndarray] | Sequence[Prompt],
        options: Any = None,
        *,
        attention: bool = False,
    ) -> list[Any]:
        """Returns the nats of texts, and continuations of prompts.

        A text is read in `config.evaluation.batch_size` rows, each from an initial
        state.
        """
        if examples and isinstance(examples[0], Prompt):
            answer = self.continuations.answer
            return [answer(state.params, x, attention=attention) for x in examples]
        return [self._nats(state.params, ids) for ids in examples]

    def _nats(self, params, ids) -> float:
        rows = min(self.config.evaluation.batch_size, len(ids))
        carry, nats = self.model.start(rows), 0.0
        for batch in running_text.in_parts(ids, rows, self.config.data.tokens):
            part, carry = self.read(params, carry, batch)
            nats += float(part)
        return nats

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns `perplexity`, `word_perplexity` and `unknown`.

        Ends of lines count as words; `unknown` is the percentage of tokens that are not
        in the vocabulary.
        """
        split = evaluation.split
        (ids,), (nats,) = evaluation.examples[split], evaluation.answers[split]
        words = sum(len(line.split()) + 1 for line in self.texts.lines(split))
        return {
            "perplexity": float(np.exp(nats / len(ids))),
            "word_perplexity": float(np.exp(nats / words)),
            "unknown": 100 * float((ids == UNK).mean()),
        }

    def picked(self, split: str, count: int) -> dict[str, Prompt]:
        """Returns the first lines of legible length, to be read; see `Task`."""
        lines = self.texts.lines(split) if self.model.attends else ()
        every = ((line, self.texts.vocabulary.encode(line)) for line in lines)
        legible = (Prompt(x, ids[:-1]) for x, ids in every if len(ids) in _LEGIBLE)
        chosen = enumerate(itertools.islice(legible, count), 1)
        return {f"line_{number}": prompt for number, prompt in chosen}

    def parse(self, line: str, options: LanguageOptions) -> Prompt:
        """Returns a line as a prompt."""
        text = " ".join(running_text.normal_lines(line))
        return Prompt(line, self.texts.vocabulary.encode(text)[:-1], options)

    def show(self, example: Prompt, answer: Continued) -> Prediction:
        """Returns a text with its continuation; see `Continuations.show`."""
        return self.continuations.show(example, answer)
