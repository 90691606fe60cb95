"""Agents that remember a trial: SNAIL, Mishra et al. (2018), and an LSTM.

Policy and value of each step are read off the history of the trial, whose inputs are
the observations, actions and rewards so far (`tasks.trials.trials`). The memory of
SNAIL is its features of all steps, that of the LSTM its state (Wang et al. 2016):

    h = ReLU(W x_t + b),  f_t = SNAIL(h_1 .. h_t) or LSTM(h_t, state),
    pi(. | x_1 .. x_t) = softmax(W_pi f_t),  V(x_1 .. x_t) = W_v f_t

The stack of SNAIL on bandits is FC 32, two temporal convolutions of 32 filters, causal
attention of 32 x 32: Mishra et al. (2018), appendix.

Differs from the paper: policy and value share all layers but the last one.

Axes: B trials; T steps; I width of an input; D hidden width; A actions.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.scores import SCORES
from base.ranges import SIZE, Choice
from models.layers import Dense, check_fields
from models.snail import Past, Snail, check_blocks


class Heads(nn.Module):
    """Linear logits and value; the first policy is nearly uniform."""

    actions: int

    @nn.compact
    def __call__(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Computes logits [..., A] and values [...] of features [..., D]."""
        small = nn.initializers.normal(1e-3)
        logits = Dense(self.actions, kernel_init=small, name="logits")(features)  # W_pi
        return logits, Dense(1, name="value")(features)[..., 0]  # W_v


class SnailAgent(nn.Module):
    """SNAIL as a policy; see the module's docstring.

    Sows the `AttentionRecord`s of SNAIL.

    Attributes:
        actions: A.
        length: T, steps of a trial.
        hidden: D, width of the encoded step; 32 in the paper.
        blocks: the blocks in order: (key width, value width) for an attention block,
            the number of filters for temporal convolutions.
        score: attention score; see `attention.scores`.
    """

    actions: Annotated[int, SIZE]
    length: Annotated[int, SIZE]
    hidden: Annotated[int, SIZE] = 32
    blocks: Annotated[Sequence[int | Sequence[int]], SIZE.each()] = (32, 32, (32, 32))
    score: Annotated[str, Choice(SCORES)] = "scaled_dot"

    @nn.nowrap
    def check(self) -> None:
        """Raises a FieldError for a block that is not D or (K, V)."""
        check_blocks(self.blocks)

    @nn.nowrap
    def start(self, batch: int) -> Past:
        """Returns the memory before the first step of B trials."""
        return Snail(self.length, self.blocks).start(batch, self.hidden)

    def setup(self):
        check_fields(self)
        self.input = Dense(self.hidden)
        self.snail = Snail(self.length, self.blocks, self.score)
        self.heads = Heads(self.actions)

    def __call__(self, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns logits [B, T, A] and values [B, T] of inputs [B, T, I]."""
        return self.heads(self.snail(nn.relu(self.input(inputs))))

    def step(
        self, memory: Past, inputs: jax.Array
    ) -> tuple[Past, jax.Array, jax.Array]:
        """Returns the new memory, logits [B, A] and values [B] of inputs [B, I]."""
        memory, features = self.snail.step(memory, nn.relu(self.input(inputs)))
        return memory, *self.heads(features)


class LSTMAgent(nn.Module):
    """LSTM as a policy, without attention: Wang et al. (2016).

    Attributes:
        actions: A.
        length: T, steps of a trial; not used.
        hidden: D, width of the state.
    """

    actions: Annotated[int, SIZE]
    length: Annotated[int, SIZE]
    hidden: Annotated[int, SIZE] = 100

    @nn.nowrap
    def start(self, batch: int) -> Any:
        """Returns cells and states before the first step of B trials, [B, D]."""
        return (jnp.zeros((batch, self.hidden)),) * 2

    def setup(self):
        check_fields(self)
        self.input = Dense(self.hidden)
        self.cell = nn.OptimizedLSTMCell(self.hidden)
        self.heads = Heads(self.actions)

    def step(self, memory: Any, inputs: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        """Returns the new memory, logits [B, A] and values [B] of inputs [B, I]."""
        memory, state = self.cell(memory, nn.relu(self.input(inputs)))
        return memory, *self.heads(state)

    def __call__(self, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns logits [B, T, A] and values [B, T] of inputs [B, T, I]."""

        def step(agent, memory, x):
            memory, *outputs = agent.step(memory, x)
            return memory, outputs

        over_steps = nn.scan(
            step,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=1,
            out_axes=1,
        )
        _, (logits, value) = over_steps(self, self.start(len(inputs)), inputs)
        return logits, value
