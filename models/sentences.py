"""Classifiers of sentences and of pairs of sentences: LSTMN, LSTM, mean of embeddings.

Cheng, Dong and Lapata (2016), sections 4, 5.2 and 5.3. A sentence is represented by the
mean of its hidden states; a pair by both means, concatenated. Two ReLU layers follow.
The encoder "mean" is the mean of the embeddings, without states; layers after the first
also get the embeddings. A pair is fused in one of three ways:

*   "none": the sentences are read independently;
*   "shallow": the states h_t of the second sentence attend to those of the first,
    tanh(W [h_t; sum_j p_j^t gamma_j]);
*   "deep": the second sentence also attends to the tape of the first as it is read; see
    `models.lstmn`.

Axes: B batch; S, T tokens of the first and the second sentence; C width of an
embedding; D width of a state.

Differs from the paper: embeddings are not pre-trained.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import attend
from attention.masks import padding_mask
from attention.tape import Tape
from base.errors import FieldError
from base.ranges import FRACTION, LAYERS, SIZE, Choice
from models.attention import MATCHING_SCORES, Score
from models.layers import PAD, Dense, Dropout, check_fields
from models.lstmn import LSTMNLayer
from models.recording import score_details, sow_attention
from models.recurrent import STANDARD, Recurrence


class SentenceClassifier(nn.Module):
    """Classifier of sentences or pairs; see the module docstring.

    Attributes:
        vocab_size: number of words, including the special ones.
        classes: number of labels.
        memory: number of slots of the tape: the maximum number of tokens.
        encoder: encoder of a sentence: "lstmn", "lstm", or "mean" for the mean of
            embeddings.
        fusion: attention of a pair's second sentence to its first: "none", "shallow" or
            "deep"; "shallow" needs an LSTM or LSTMN and has an additive score, "deep"
            needs an LSTMN.
        embedding: C, width of the embeddings; 300 in the paper.
        hidden: D, width of the states; 300 or 450 in the paper.
        layers: number of layers of the encoder.
        score: score of the intra-attention.
        score_hidden: hidden width of the scores.
        classifier: width of the ReLU layers of the classifier.
        dropout: dropout rate of embeddings and of the ReLU layers.
    """

    vocab_size: Annotated[int, SIZE]
    classes: Annotated[int, SIZE]
    memory: Annotated[int, SIZE]
    encoder: Literal["lstmn", "lstm", "mean"] = "lstmn"
    fusion: Literal["none", "shallow", "deep"] = "none"
    embedding: Annotated[int, SIZE] = 300
    hidden: Annotated[int, SIZE] = 300
    layers: Annotated[int, LAYERS] = 1
    score: Annotated[str, Choice(MATCHING_SCORES)] = "additive"
    score_hidden: Annotated[int, SIZE] = 300
    classifier: Annotated[int, SIZE] = 300
    dropout: Annotated[float, FRACTION] = 0.5

    @nn.nowrap
    def check(self) -> None:
        """Checks rules between the fields."""
        if self.fusion == "deep" and self.encoder != "lstmn":
            raise FieldError("encoder", self.encoder, "lstmn, as fusion is deep")
        if self.fusion == "shallow" and self.encoder == "mean":
            accepted = "lstmn or lstm, as fusion is shallow"
            raise FieldError("encoder", self.encoder, accepted)

    def setup(self):
        check_fields(self)
        shape = self.vocab_size, self.embedding
        self.table = self.param("table", nn.initializers.normal(0.1), shape)
        self.drop = Dropout(self.dropout)
        self.first = self.stack() if self.encoder != "mean" else []
        # Layers with deep fusion have more parameters; without it, layers are shared.
        self.second = self.stack() if self.fusion == "deep" else self.first
        self.dense = [Dense(self.classifier) for _ in range(2)]
        self.output = Dense(self.classes)
        if self.fusion == "shallow":
            self.inter = Score("additive", hidden=self.score_hidden)
            self.fuse = Dense(self.hidden)

    def stack(self) -> list[nn.Module]:
        """Returns the layers of an encoder."""
        if self.encoder == "lstm":
            return [
                Recurrence("lstm", self.hidden, STANDARD) for _ in range(self.layers)
            ]
        return [
            LSTMNLayer(
                features=self.hidden,
                memory=self.memory,
                score=self.score,
                score_hidden=self.score_hidden,
                layer=layer,
            )
            for layer in range(self.layers)
        ]

    def __call__(self, batch: dict[str, jax.Array], *, train: bool) -> jax.Array:
        """Classifies sentences or pairs.

        Sows an `AttentionRecord` of each attention: kind "intra" of the last sentence
        that is read, and "cross" of the second sentence to the first.

        Args:
            batch: int `first` [B, S], for pairs also `second` [B, T].
            train: whether dropout is on (RNG stream "dropout").

        Returns:
            [B, classes] logits.
        """
        tapes, features = self.read(
            self.first, batch["first"], source=None, train=train
        )
        if "second" in batch:
            source = tapes if self.fusion == "deep" else None
            others, means = self.read(
                self.second, batch["second"], source=source, train=train
            )
            if self.fusion == "shallow":
                means = self.fuse_shallow(others[-1], tapes[-1])
            features = jnp.concatenate([features, means], -1)
        for dense in self.dense:
            features = self.drop(nn.relu(dense(features)), deterministic=not train)
        return self.output(features)

    def read(
        self, stack: list, tokens: jax.Array, source: list[Tape] | None, *, train: bool
    ) -> tuple[list[Tape], jax.Array]:
        """Reads sentences; returns the tape of each layer and the mean state [B, D]."""
        mask = tokens != PAD
        embedded = self.drop(self.table[tokens], deterministic=not train)
        x, tapes = embedded, []
        for number, layer in enumerate(stack):
            if number:  # skip connection
                x = jnp.concatenate([x, embedded], -1)
            if self.encoder == "lstmn":
                other = source[number] if source else None
                tape, _ = layer(x, mask=mask, source=other)
            else:
                hidden, _ = layer(x, mask)
                tape = Tape(hidden, hidden, mask)  # shallow fusion reads only h_i
            x = tape.key
            tapes.append(tape)
        return tapes, _mean(x, mask)

    def fuse_shallow(self, tape: Tape, source: Tape) -> jax.Array:
        """Mean [B, D] of the second sentence's states, fused with the first's."""
        h, gamma = tape.key, source.key  # states of the second and the first sentence
        mask = padding_mask(source.valid)
        # p_j^t = softmax_j(score(h_t, gamma_j)), context sum_j p_j^t gamma_j
        context, weights = attend(self.inter(h, gamma), gamma, mask=mask)
        q, k = h[:, None], gamma[:, None]
        sow_attention(
            self,
            weights[:, None],
            lambda: score_details(self.inter.parts(q, k), mask[:, None]),
            kind="cross",
            queries="tokens",
            keys="source",
        )
        fused = nn.tanh(self.fuse(jnp.concatenate([h, context], -1)))
        return _mean(fused, tape.valid)


def _mean(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean [B, D] of x [B, T, D] where the mask [B, T] is True."""
    mask = mask[..., None]
    return jnp.sum(x * mask, 1) / jnp.maximum(mask.sum(1), 1)
