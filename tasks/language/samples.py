"""Losses, continuations and attention figures of language models, shared by tasks.

Axes: B batch; T tokens; W vocabulary.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from base.options import option
from base.ranges import Range, declared
from base.records import AttentionRecord, collect
from figures.attention import AttentionMap, attention_map
from figures.heatmaps import attention_heatmaps
from generation.options import DrawOptions
from generation.sampling import sample
from generation.search import Search
from tasks.common.vocabulary import BOS, EOS, PAD, UNK
from training.task import Prediction

_LENGTH = Range(1, 1000, whole=True)


@dataclasses.dataclass(frozen=True)
class LanguageOptions(DrawOptions):
    """Flags of predict.py for language models."""

    length: int = option(50, "Maximum number of tokens after the line.", _LENGTH)
    temperature: float = option(
        1.0,
        "Sampling temperature; 0 takes the most probable token.",
        declared(Search)["temperature"],
    )


class Vocabulary(Protocol):
    """Vocabulary of a language; see `tasks.common.vocabulary.Vocabulary`."""

    def decode(self, ids: Any) -> str:
        """Returns the text of ids."""

    def pieces(self, ids: Any) -> list[str]:
        """Returns the pieces of ids."""


def previous(tokens: Any) -> jax.Array:
    """Returns the input of each step [B, T]: BOS, then the previous tokens."""
    return jnp.pad(tokens[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)


def token_nats(logits: jax.Array, tokens: Any) -> jax.Array:
    """Returns the cross-entropy [B, T] of tokens, 0 at padding."""
    nats = optax.softmax_cross_entropy_with_integer_labels(logits, tokens)
    return jnp.where(tokens == PAD, 0, nats)


class Continuations:
    """Continuations of texts by a language model, and its attention."""

    def __init__(self, model: Any, vocabulary: Vocabulary):
        """Stores the arguments.

        Args:
            model: a model of `models.language`.
            vocabulary: its vocabulary.
        """
        self.model, self.vocabulary = model, vocabulary
        self.read = jax.jit(functools.partial(model.apply, train=False))
        self._sample = jax.jit(self._continue, static_argnames="options")
        self._attend = jax.jit(
            functools.partial(model.apply, train=False, mutable=["attention"])
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

    def predict(
        self,
        params: Any,
        ids: Sequence[int],
        options: LanguageOptions,
        *,
        seed: int,
        attention: bool,
    ) -> Prediction:
        """Returns a text with its continuation, and the log-probability of the latter.

        Args:
            params: parameters of the model.
            ids: ids of the text, without BOS and EOS.
            options: options of sampling.
            seed: seed of sampling; see `generation.sampling.line_seed`.
            attention: whether to return attention maps of the whole text.
        """
        variables, read = {"params": params}, [BOS, *ids]
        carry = self.model.start(1)
        if ids:
            _, carry = self.read(variables, jnp.array([read[:-1]]), carry)
        seeds = np.array([seed], np.uint32)
        decoded = self._sample(variables, carry, read[-1], seeds, options=options)
        new = np.asarray(decoded.tokens[0, 0]).tolist()
        maps = ()
        if attention:
            text = [*read, *new[: new.index(EOS)]]
            maps = self.attention(params, text)
        text = self.vocabulary.decode([*ids, *new])
        return Prediction(text, float(decoded.log_probs[0, 0]), maps)

    def attention(self, params: Any, ids: Sequence[int]) -> tuple[AttentionMap, ...]:
        """Returns the attention maps of a text that begins with BOS, by layer."""
        _, sown = self._attend({"params": params}, jnp.array([ids]))
        labels = ["<s>", *self.vocabulary.pieces(ids)]
        records = collect(sown, AttentionRecord)
        return tuple(attention_map(record, labels, labels) for record in records)


def draw_text(
    maps: Sequence[AttentionMap],
    title: str,
    path: Path,
    labels: Callable[[Sequence[str]], Sequence[str]] = list,
) -> Path:
    """Draws attention between words, as in figure 1 of Cheng et al. (2016).

    A row is the word being read; its cells are the weights of the words it attends to,
    averaged over heads.

    Args:
        maps: one per layer, or per hop of a memory network.
        title: the title.
        path: the file.
        labels: makes pieces readable.

    Returns:
        `path`.
    """
    several = len(maps) > 1
    part = "hop" if maps[0].name == "memory" else "layer"
    return attention_heatmaps(
        np.stack([each.weights.mean(0) for each in maps]),
        rows=labels(maps[0].queries),
        columns=labels(maps[0].keys),
        title=title,
        path=path,
        panels=[f"{part} {each.layer + 1}" if several else "" for each in maps],
        row_title="word being read",
        column_title="attended word",
    )
