"""Encoder-decoders with one fixed vector between them: no attention.

Sutskever, Vinyals and Le (2014): stacked LSTMs, the source read backwards, the decoder
starts from the encoder's last states. Cho et al. (2014): gated units, a summary c =
tanh(V h) that sets the decoder's first state and enters every step and a maxout
readout. Between them, the four ways of feeding an encoding to a decoder.

What differs from the papers: dropout, by field, its rate rounded to a multiple of
1/256; biases start at 0; the two pieces of a maxout unit are half the layer apart
instead of side by side. The gated unit is the one of `models.recurrent` in encoder and
decoder: z and 1 - z have changed places against Cho et al., and the reset gate acts on
the state before U, and not on what the summary adds.

Axes: see `models.recurrent`; l maxout units.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.layers import PAD, Dense, logits
from models.recurrent import (
    CELLS,
    Encoder,
    Init,
    Maxout,
    Stack,
    uniform_init,
)
from models.recurrent_translator import Carry, RecurrentTranslator, Step

FEEDS = ("every_step", "first_step", "initial_state", "feed_forward")


class Memory(NamedTuple):
    """The fixed vector, and what is made of it once for all steps."""

    vector: jax.Array  # [B, layers states D], or [B, D] as a summary
    fed: jax.Array | None  # [B, 1, G], what it adds to the gates
    start: tuple[jax.Array, ...]  # a layer: [B, states D]


class Seq2Seq(RecurrentTranslator):
    """Encoder-decoder without attention; see the module's docstring.

    Attributes:
        layers: of the encoder and of the decoder; 4 in Sutskever et al., 1 in Cho et
            al.
        reverse_source: whether the source is read from its last word to its first.
        summary: "state", all that the encoder's layers carry out of the source, or
            "tanh", Cho's tanh(V h) of its output.
        feed: how the decoder gets it, one or more of "every_step" (added to the gates
            of every step), "first_step" (of the first step only), "initial_state" (it
            is the decoder's first state), "feed_forward" (a layer of it is).
        maxout: l units of two pieces, of state, last word and summary, in the readout;
            0 for logits right from the state.

    The others are those of `RecurrentTranslator`.
    """

    layers: int
    reverse_source: bool
    summary: str
    feed: tuple[str, ...]
    maxout: int

    alignment: ClassVar[str] = ""
    paper_init: ClassVar[Init] = uniform_init(0.08)  # Sutskever et al., section 3.4
    choices: ClassVar = {"summary": ("state", "tanh")}
    positive: ClassVar = (*RecurrentTranslator.positive, "layers")

    def setup(self):
        """Creates what this translator has."""
        super().setup()
        if not self.feed or set(self.feed) - set(FEEDS):
            raise ValueError(f"feed is {self.feed}: must name some of {FEEDS}")
        if {"initial_state", "feed_forward"} <= set(self.feed):
            raise ValueError(
                f"feed is {self.feed}: takes initial_state or feed_forward, not both"
            )
        if {"every_step", "first_step"} <= set(self.feed):
            raise ValueError(
                f"feed is {self.feed}: every_step is also the first, name one of them"
            )
        if self.summary == "tanh" and self.init_scheme == "paper":
            raise ValueError(
                "init_scheme is 'paper': that of Sutskever et al., whose summary is "
                "'state'"
            )
        if self.summary == "tanh" and "initial_state" in self.feed:
            raise ValueError(
                f"feed is {self.feed}: a summary of 'tanh' is no state, which takes "
                "feed_forward instead of initial_state"
            )
        if self.maxout < 0:
            raise ValueError(f"maxout is {self.maxout}: must be at least 0")
        n, inits, common = self.hidden, self.inits, (self.cell, self.hidden)
        self.encoder = Encoder(
            *(*common, self.layers, False, self.reverse_source, self.dropout, inits)
        )
        if self.summary == "tanh":
            self.summarise = Dense(n, kernel_init=inits.kernel)
        if "feed_forward" in self.feed:
            width = self.layers * CELLS[self.cell].states * n
            self.bridge = Dense(width, kernel_init=inits.kernel)
        if {"every_step", "first_step"} & set(self.feed):
            width = CELLS[self.cell].gates * n
            self.fed = Dense(width, kernel_init=inits.kernel, use_bias=False)
        self.stack = Stack(*common, self.layers, self.dropout, inits)
        if self.maxout:
            self.deep = Maxout(self.maxout, inits)
        shape = (self.vocab_size, self.maxout or n)
        self.output = self.param("output", inits.embedding, shape)

    def encode(self, source: jax.Array, *, train: bool = False) -> Memory:
        """Reads sources [B, S] of int32 ids, padded with 0, into one vector each."""
        embedded = self._embed(source, train=train, source=True)
        _, carries = self.encoder(embedded, source != PAD, train=train)
        states = [carried for (carried,) in carries]
        vector = jnp.concatenate(states, axis=-1)
        if self.summary == "tanh":
            vector = nn.tanh(self.summarise(states[-1][..., : self.hidden]))
        fed = self.fed(vector)[:, None] if hasattr(self, "fed") else None
        if "feed_forward" in self.feed:
            states = jnp.split(nn.tanh(self.bridge(vector)), self.layers, axis=-1)
        elif "initial_state" not in self.feed:
            states = [jnp.zeros_like(state) for state in states]
        return Memory(vector, fed, tuple(states))

    def weights(self, memory):
        """What a step multiplies by, by name; see `scan`."""
        return self.stack.weights()

    def shared(self, memory):
        """What a step reads besides, a pytree."""
        return memory.fed, self.stack.biases()

    @nn.nowrap
    def advance(self, product, shared, carry, x):
        """A step of each layer, one after the other."""
        (gates, noise, _), (fed, biases) = x, shared
        if fed is not None:
            often = "every_step" in self.feed
            gates = gates + (fed if often else jnp.where(carry.time == 0, fed, 0))
        states, output = self.stack.advance(product, biases, carry.states, gates, noise)
        return Carry(carry.time + 1, states), Step(output)

    def readout(self, embedded, step, memory, *, train):
        """Logits from the state, or from maxout of O_h h + O_y y + O_c c (Cho)."""
        x = step.state
        if self.maxout:
            vector = memory.vector[:, None]
            vector = jnp.broadcast_to(vector, (*x.shape[:2], vector.shape[-1]))
            x = self.deep(jnp.concatenate([x, embedded, vector], axis=-1))
        return logits(self.drop(x, train=train), self.output)
