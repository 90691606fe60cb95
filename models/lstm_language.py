"""LSTM language model, and the interface of all language models.

All language models have one interface: `model(tokens, carry, train=...)` returns the
logits of the next token at each position, and the carry for the next part of the text;
`model.start(batch)` is the carry at the beginning of a text. Reading a text in parts
gives the same logits as reading it whole; with `TransformerLanguageModel` only while at
most `memory` tokens precede a part. The others are `LSTMNLanguageModel`,
`TransformerLanguageModel` and `MemoryNetworkLanguageModel`.

Skip connections feed the embedded token to every layer, in addition to the output of
the layer below (Graves 2013).

Axes: B batch; T tokens; C width of an embedding; D width of a state; W vocabulary.
"""

from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from base.ranges import FRACTION, LAYERS, SIZE
from models.initializers import STANDARD
from models.layers import Dropout, check_fields, logits
from models.recurrent import Recurrence


class LSTMLanguageModel(nn.Module):
    """Language model of stacked LSTM layers.

    A subclass with other layers overrides `layer`, `state` and `read`.

    Attributes:
        vocab_size: W.
        embedding: C, width of the embeddings.
        hidden: D, width of the states.
        layers: number of layers.
        skip: whether the embedded token also enters the layers after the first.
        dropout: dropout rate of embeddings and of the output of each layer.
    """

    vocab_size: Annotated[int, SIZE]
    embedding: Annotated[int, SIZE] = 150
    hidden: Annotated[int, SIZE] = 300
    layers: Annotated[int, LAYERS] = 1
    skip: bool = True
    dropout: Annotated[float, FRACTION] = 0.0

    attends: ClassVar[bool] = False

    @nn.nowrap
    def layer(self, number: int) -> nn.Module:
        """Returns layer `number`, counted from 0."""
        return Recurrence("lstm", self.hidden, STANDARD)

    @nn.nowrap
    def state(self, batch: int) -> Any:
        """Returns the state of a layer before the first token of B texts."""
        return jnp.zeros((batch, 2 * self.hidden))

    def setup(self):
        check_fields(self)
        init = STANDARD.embedding
        self.table = self.param(
            "embedding_table", init, (self.vocab_size, self.embedding)
        )
        self.output = self.param("output", init, (self.vocab_size, self.hidden))
        self.bias = self.param("bias", nn.initializers.zeros, (self.vocab_size,))
        self.stack = [self.layer(number) for number in range(self.layers)]
        self.drop = Dropout(self.dropout)

    @nn.nowrap
    def start(self, batch: int) -> tuple[Any, ...]:
        """Returns the carry before the first token of B texts, one state per layer."""
        return (self.state(batch),) * self.layers

    def __call__(
        self, tokens: jax.Array, carry: Any = None, *, train: bool
    ) -> tuple[jax.Array, tuple[Any, ...]]:
        """Reads a part of each text.

        Args:
            tokens: int [B, T].
            carry: that of the preceding part; None at the beginning of the texts.
            train: whether dropout is on (RNG stream "dropout").

        Returns:
            [B, T, W] logits of the next tokens, and the carry.
        """
        carry = (None,) * self.layers if carry is None else carry
        embedded = self.drop(self.table[tokens], deterministic=not train)
        x, states = embedded, []
        for number, (layer, state) in enumerate(zip(self.stack, carry, strict=True)):
            if number and self.skip:
                x = jnp.concatenate([x, embedded], -1)
            x, state = self.read(layer, x, state)
            x = self.drop(x, deterministic=not train)
            states.append(state)
        return logits(x, self.output) + self.bias, tuple(states)

    def read(self, layer: Any, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        """Applies a layer to x [B, T, C]: outputs [B, T, D] and the next state."""
        return layer(x, carry=state)
