"""Losses, continuations and attention figures of language models, shared by tasks.

Axes: B batch; T tokens; W vocabulary.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from base.ranges import Range
from base.records import DETAILS, AttentionRecord, records_of
from figures.attention import AttentionMap, attention_map
from generation.options import DrawOptions
from generation.sampling import line_seed, sample
from generation.search import TEMPERATURE
from tasks.common.vocabulary import BOS, EOS, PAD, UNK
from training.task import Prediction

_LENGTH = Range(1, 1000, whole=True)


class LanguageOptions(DrawOptions):
    """Flags of predict.py for language models."""

    length: Annotated[int, _LENGTH] = 50  # maximum number of tokens after the line
    # 0 takes the most probable token.
    temperature: Annotated[float, TEMPERATURE] = 1.0


class Prompt(NamedTuple):
    """A text to continue."""

    text: str  # the text as typed, which samples depend on
    ids: Sequence[int]  # its ids, without BOS and EOS
    # options of sampling; None to read the text only
    options: LanguageOptions | None = None


class Continued(NamedTuple):
    """Ids of a continuation up to EOS, its log-probability, and attention maps."""

    ids: Sequence[int]
    score: float
    maps: tuple[AttentionMap, ...]


def previous(tokens: Any) -> jax.Array:
    """Returns the input of each step [B, T]: BOS, then the previous tokens."""
    return jnp.pad(tokens[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)


def token_nats(logits: jax.Array, tokens: Any) -> jax.Array:
    """Returns the cross-entropy [B, T] of tokens, 0 at padding."""
    nats = optax.softmax_cross_entropy_with_integer_labels(logits, tokens)
    return jnp.where(tokens == PAD, 0, nats)


class Continuations:
    """Continuations of texts by a language model, and its attention.

    Args:
        model: a language model; see `models.lstm_language`.
        vocabulary: its vocabulary, with `decode` and `pieces`.
        labels: makes pieces readable.
    """

    def __init__(
        self,
        model: Any,
        vocabulary: Any,
        labels: Callable[[Sequence[str]], Sequence[str]] = list,
    ):
        self.model, self.vocabulary, self._labels = model, vocabulary, labels
        self.read = jax.jit(functools.partial(model.apply, train=False))
        self._sample = jax.jit(self._continue, static_argnames="options")
        self._attend = jax.jit(
            functools.partial(model.apply, train=False, mutable=["attention", DETAILS])
        )

    def _continue(self, params, carry, token, seeds, *, options):
        def step(carry, token):
            logits, carry = self.model.apply(params, token, carry, train=False)
            return carry, logits.at[..., jnp.array([PAD, BOS, UNK])].set(-1e9), None

        temperature = options.temperature or 1.0
        return sample(
            step,
            carry,
            seeds,
            batch=1,
            max_length=options.length + 1,
            temperature=temperature,
            top_k=options.top_k if options.temperature else 1,
            top_p=options.top_p,
            bos=token,
            eos=EOS,
            pad=PAD,
        )

    def answer(self, params: Any, prompt: Prompt, *, attention: bool) -> Continued:
        """Returns the continuation of a prompt, and the attention of the whole text."""
        variables, read = {"params": params}, [BOS, *prompt.ids]
        new, score = [EOS], 0.0
        if prompt.options:
            carry = self.model.start(1)
            if prompt.ids:
                _, carry = self.read(variables, jnp.array([read[:-1]]), carry)
            decoded = self._sample(
                variables,
                carry,
                read[-1],
                np.array([line_seed(prompt.options.seed, prompt.text)], np.uint32),
                options=dataclasses.replace(prompt.options, seed=0),  # one compilation
            )
            new = np.asarray(decoded.tokens[0, 0]).tolist()
            score = float(decoded.log_probs[0, 0])
        if not attention:
            return Continued(new, score, ())
        ids = [*read, *new[: new.index(EOS)]]
        _, sown = self._attend(variables, jnp.array([ids]))
        labels = self._labels(["<s>", *self.vocabulary.pieces(ids)])
        maps = (
            attention_map(record, labels, labels, ("word being read", "attended word"))
            for record in records_of(sown, AttentionRecord)
        )
        return Continued(new, score, tuple(maps))

    def show(self, prompt: Prompt, answer: Continued, caption: str = "") -> Prediction:
        """Returns a text with its continuation, and the log-probability of the latter.

        Its figure is as figure 1 of Cheng et al. (2016): a row is the word being read.
        """
        text = self.vocabulary.decode([*prompt.ids, *answer.ids])
        source = self.vocabulary.decode(prompt.ids)
        return Prediction(
            text, answer.score, answer.maps, caption=caption, source=source
        )
