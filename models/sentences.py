"""Classifiers of sentences and of pairs of sentences: LSTMN, LSTM, mean of embeddings.

Cheng, Dong and Lapata (2016), sections 4, 5.2 and 5.3. A sentence is represented by the
mean of its hidden states; a pair by both means, concatenated. Two ReLU layers follow.
The encoder "mean" has no states: it takes the mean of the embeddings. Layers after the
first also read the embeddings. A pair is fused in one of three ways:

*   "none": the sentences are read independently;
*   "shallow": the states h_t of the second sentence attend to those of the first,
    tanh(W [h_t; sum_j p_j^t gamma_j]);
*   "deep": the second sentence also attends to the tape of the first as it is read; see
    `models.lstmn`.

Axes: B batch; S, T tokens of the first and the second sentence; C width of an
embedding; D width of a state.

Differs from the paper: embeddings are not pre-trained.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import attend
from attention.masks import padding_mask
from attention.tape import Tape
from base.errors import FieldError
from base.ranges import FRACTION, LAYERS, SIZE, Choice
from models.attention import MATCHING_SCORES, Score
from models.initializers import STANDARD
from models.layers import PAD, Dense, Dropout, check_fields
from models.lstmn import LSTMNLayer
from models.recording import score_details, sow_attention
from models.recurrent import Recurrence


class Reading(NamedTuple):
    """States of sentences that were read.

    Attributes:
        hidden: [B, T, D], h_t of the last layer, or the embeddings [B, T, C] of the
            encoder "mean".
        valid: bool [B, T], False at padding.
        tapes: the tape of each layer; empty unless the layers are LSTMNs.
    """

    hidden: jax.Array
    valid: jax.Array
    tapes: list[Tape]

    def mean(self) -> jax.Array:
        """Mean state [B, D] of the tokens."""
        valid = self.valid[..., None]
        return jnp.sum(self.hidden * valid, 1) / jnp.maximum(valid.sum(1), 1)


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

        Sows an `AttentionRecord` of each attention: kind "intra" of each layer and
        sentence, and "cross" of the second sentence to the first.

        Args:
            batch: int `first` [B, S], for pairs also `second` [B, T].
            train: whether dropout is on (RNG stream "dropout").

        Returns:
            [B, classes] logits.
        """
        first = self.read(self.first, batch["first"], train=train)
        features = first.mean()
        if "second" in batch:
            sources = first.tapes if self.fusion == "deep" else ()
            second = self.read(self.second, batch["second"], sources, train=train)
            if self.fusion == "shallow":
                second = second._replace(hidden=self.fuse_shallow(second, first))
            features = jnp.concatenate([features, second.mean()], -1)
        for dense in self.dense:
            features = self.drop(nn.relu(dense(features)), deterministic=not train)
        return self.output(features)

    def read(
        self,
        stack: Sequence[Any],
        tokens: jax.Array,
        sources: Sequence[Tape] = (),
        *,
        train: bool,
    ) -> Reading:
        """Reads sentences [B, T], with deep fusion if there is a source per layer."""
        valid, tapes = tokens != PAD, []
        hidden = embedded = self.drop(self.table[tokens], deterministic=not train)
        for number, layer in enumerate(stack):
            x = hidden
            if number:  # skip connection
                x = jnp.concatenate([hidden, embedded], -1)
            if self.encoder == "lstmn":
                source = sources[number] if sources else None
                tape, _ = layer(x, mask=valid, source=source)
                hidden = tape.key
                tapes.append(tape)
            else:
                hidden, _ = layer(x, valid)
        return Reading(hidden, valid, tapes)

    def fuse_shallow(self, second: Reading, first: Reading) -> jax.Array:
        """States of the second sentence, fused with those of the first: [B, T, D]."""
        h, gamma, mask = second.hidden, first.hidden, padding_mask(first.valid)
        # p_j^t = softmax_j(score(h_t, gamma_j)), context sum_j p_j^t gamma_j
        context, p = attend(self.inter(h, gamma), gamma, mask=mask)
        fused = nn.tanh(self.fuse(jnp.concatenate([h, context], -1)))
        sow_attention(
            self,
            p[:, None],
            lambda: score_details(
                self.inter.parts(h[:, None], gamma[:, None]), mask[:, None]
            ),
            kind="cross",
            queries="tokens",
            keys="source",
        )
        return fused
