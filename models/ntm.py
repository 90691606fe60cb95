"""Neural Turing Machine and its LSTM baseline.

Graves, Wayne and Danihelka (2014): a recurrent or feed-forward controller reads and
writes a memory through heads. This module has the controller, which emits the head
parameters; the heads' equations are in `attention.memory`, their fast form in
`attention.fast.memory`.

Axes: B batch; T steps; I inputs; O outputs; D width of the controller; G width of its
gates; R read heads; W write heads; H = R + W; N memory slots; M memory width; J shifts;
P head parameters.

Differs from the paper: heads start at slot 0 instead of at learned weights, so that the
number of slots can change; the gradient is clipped between steps, since a head that
sharpens a tie in every step multiplies its gradient by gamma each time, which overflows
after one or two hundred steps.

Choices that the paper leaves open: all heads address the memory as it was before the
step, and the output of a step depends on the vectors read in that step; a feed-forward
controller is one tanh layer; the random memory is one fixed sample. Softplus for the
key strength, 1 + softplus for the sharpening, tanh for keys and add vectors, and the
constant memory, which learned fastest, follow Collier and Beel (2018), section 3.
"""

import functools
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.memory import address, read, write
from attention.fast.scan import scan
from base.errors import FieldError
from base.ranges import LAYERS, SIZE, Range
from base.records import MemoryDetails
from models.cells import batch_first, lstm, time_first
from models.initializers import STANDARD
from models.layers import Dense, check_fields
from models.recording import sow_attention
from models.recurrent import Gates, Recurrence, StateMatrices

_UNROLLED = Range(1, 32, whole=True)  # a step has code for each
_SLOTS = Range(1, 10_000, whole=True)
_CONSTANT = 1e-6  # value of the constant memory
_DEVIATION = 0.5  # standard deviation of the random and of the learned memory
_MAX_GRADIENT = 100.0  # per element of the carry, for a loss in nats


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def bounded_gradient(x: Any, limit: float) -> Any:
    """Identity whose gradient is clipped to [-limit, limit], elementwise.

    Applied to the carry of a scan, it bounds the gradient between steps. Clipping after
    the backward pass is too late, since the product of the steps' Jacobians can
    overflow.

    Args:
        x: pytree of arrays of any shape.
        limit: a positive Python number, the maximum absolute value of a gradient.

    Returns:
        `x`.
    """
    return x


def _clip_gradient(limit, _, gradient):
    return (jax.tree.map(lambda g: jnp.clip(g, -limit, limit), gradient),)


bounded_gradient.defvjp(lambda x, limit: (x, None), _clip_gradient)


class NTMCarry(NamedTuple):
    """State of the machine between steps."""

    state: jax.Array | None  # [B, 1, 2 D] of an LSTM controller
    reads: jax.Array  # [B, 1, R M], read vectors
    memory: jax.Array  # [B, M, N]
    weights: jax.Array  # [B, H, N], read heads first


class HeadParameters(NamedTuple):
    """Parameters that the controller emits for its heads: sections 3.2 and 3.3."""

    key: jax.Array  # [..., H, M], k_t
    strength: jax.Array  # [..., H], beta_t
    gate: jax.Array  # [..., H], g_t
    shifts: jax.Array  # [..., H, J], s_t
    sharpening: jax.Array  # [..., H], gamma_t
    erase: jax.Array  # [..., W, M], e_t
    add: jax.Array  # [..., W, M], a_t


class NeuralTuringMachine(nn.Module):
    """Neural Turing Machine; maps a sequence to logits of the same length.

    Attributes:
        outputs: O, number of logits per step.
        controller: network that controls the heads, "lstm" or "feedforward".
        hidden: D, width of the controller.
        read_heads: R, number of read heads.
        write_heads: W, number of write heads.
        slots: N, number of memory slots; no parameter depends on it, unless the initial
            memory is learned.
        width: M, width of a slot.
        shifts: J, number of shifts, odd: a head moves by at most J // 2 slots per step.
        memory_init: initial memory: "constant" (1e-6), "learned", or "random" (normal,
            the same for every sequence and run).
    """

    outputs: Annotated[int, SIZE]
    controller: Literal["lstm", "feedforward"] = "lstm"
    hidden: Annotated[int, SIZE] = 100
    read_heads: Annotated[int, _UNROLLED] = 1
    write_heads: Annotated[int, _UNROLLED] = 1
    slots: Annotated[int, _SLOTS] = 128
    width: Annotated[int, SIZE] = 20
    shifts: Annotated[int, _UNROLLED] = 3
    memory_init: Literal["constant", "learned", "random"] = "constant"

    @nn.nowrap
    def check(self) -> None:
        """Checks rules between the fields."""
        if self.shifts % 2 == 0 or self.shifts > self.slots:
            accepted = f"odd and at most slots={self.slots}"
            raise FieldError("shifts", self.shifts, accepted)

    def setup(self):
        """Checks the fields and creates the parameters."""
        check_fields(self)
        n, zeros = self.hidden, nn.initializers.zeros
        if self.controller == "lstm":
            gates = 4 * n  # G
            self.gates = Gates("lstm", n, STANDARD)
            self.recurrent = StateMatrices("lstm", n, STANDARD)
            self.first_state = self.param("first_state", zeros, (2 * n,))
        else:
            gates = n
            self.gates = Dense(n)
        heads = self.read_heads + self.write_heads
        size = heads * self._addressing_width + self.write_heads * 2 * self.width  # P
        reads = self.read_heads * self.width
        self.from_reads = self.param("from_reads", STANDARD.kernel, (reads, gates))
        self.to_heads = self.param("to_heads", STANDARD.kernel, (n, size))
        self.to_heads_bias = self.param("to_heads_bias", zeros, (size,))
        self.first_reads = self.param("first_reads", zeros, (reads,))
        if self.memory_init == "learned":
            init = nn.initializers.normal(_DEVIATION)
            self.first_memory = self.param("memory", init, (self.width, self.slots))
        self.output = Dense(self.outputs)

    @property
    def _addressing_width(self) -> int:
        """Number of addressing parameters per head, M + 3 + J."""
        return self.width + 3 + self.shifts

    def __call__(self, inputs: jax.Array, *, train: bool) -> jax.Array:
        """Computes the logits of all steps; sows "read" and "write" attention records.

        Args:
            inputs: [B, T, I].
            train: has no effect; there is no dropout.

        Returns:
            [B, T, O] logits.
        """
        del train
        u = self.recurrent() if self.controller == "lstm" else None
        _, (hidden, reads, weights) = scan(
            self._step,
            (self.from_reads, u, self.to_heads),
            self.to_heads_bias,
            self._start(len(inputs)),
            time_first(self.gates(inputs)),
        )
        weights = jnp.moveaxis(weights, 0, 2)  # [B, H, T, N]
        outputs = jnp.concatenate([batch_first(hidden), batch_first(reads)], axis=-1)
        logits = self.output(outputs)

        @functools.cache  # both records have the same details
        def details() -> MemoryDetails:
            heads = self._heads(hidden @ self.to_heads + self.to_heads_bias)
            heads = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), heads)
            start = self._start(len(inputs))
            return MemoryDetails(
                weights,
                **heads._asdict(),
                start=start.memory.mT,
                focus=start.weights,
                inputs=inputs,
                outputs=logits,
            )

        axes = {"queries": "steps", "keys": "memory"}
        reading, writing = jnp.split(weights, [self.read_heads], axis=1)
        sow_attention(self, reading, details, kind="read", **axes)
        sow_attention(self, writing, details, kind="write", **axes)
        return logits

    @nn.nowrap
    def _step(
        self, w: Any, bias: jax.Array, carry: NTMCarry, gates: jax.Array
    ) -> tuple[NTMCarry, tuple[jax.Array, jax.Array, jax.Array]]:
        """Computes one step of controller and heads: section 3.

            w^c = softmax_i(beta K[k, M_{t-1}(i)]),  K the cosine               (5), (6)
            w^g = g w^c + (1 - g) w_{t-1},  w~ = w^g * s (circular)             (7), (8)
            w_t = w~^gamma / sum_i w~(i)^gamma                                       (9)
            r_t = sum_i w_t(i) M_{t-1}(i)                                            (2)
            M_t(i) = M_{t-1}(i) (1 - w_t(i) e_t) + w_t(i) a_t                   (3), (4)

        Args:
            w: the matrices of the read vectors [R M, G], of an LSTM controller or None,
                and of the heads [D, P].
            bias: [P], added to the head parameters.
            carry: from the previous step.
            gates: [B, 1, G], the input's contribution to the controller's gates.

        Returns:
            The next carry; the controller's state [B, 1, D], the read vectors
            [B, 1, R M] and the weights [B, H, N].
        """
        from_reads, recurrent, to_heads = w
        gates = gates + carry.reads @ from_reads
        if self.controller == "lstm":
            state = lstm(gates, carry.state, recurrent)
            hidden = state[..., : self.hidden]
        else:
            state, hidden = None, nn.tanh(gates)
        heads = self._heads(hidden @ to_heads + bias)
        weights = address(  # eqs. 5 to 9
            carry.memory,
            carry.weights,
            key=heads.key,
            strength=heads.strength,
            gate=heads.gate,
            shifts=heads.shifts,
            sharpening=heads.sharpening,
        )
        w_read, w_write = jnp.split(weights, [self.read_heads], axis=-2)
        reads = read(w_read, carry.memory)  # eq. 2
        memory = write(carry.memory, w_write, heads.erase, heads.add)  # eqs. 3, 4
        reads = reads.reshape(carry.reads.shape)
        carry = NTMCarry(state=state, reads=reads, memory=memory, weights=weights)
        carry = bounded_gradient(carry, _MAX_GRADIENT)
        return carry, (hidden, reads, weights)

    @nn.nowrap
    def _heads(self, x: jax.Array) -> HeadParameters:
        """Splits the controller's output x [..., B, 1, P] into head parameters."""
        heads, m = self.read_heads + self.write_heads, self.width
        addressing, writing = jnp.split(x, [heads * self._addressing_width], axis=-1)
        batch = x.shape[:-2]
        addressing = addressing.reshape(*batch, heads, self._addressing_width)
        writing = writing.reshape(*batch, self.write_heads, 2 * m)
        erase, add = jnp.split(writing, 2, axis=-1)
        return HeadParameters(
            key=nn.tanh(addressing[..., :m]),
            strength=nn.softplus(addressing[..., m]),
            gate=nn.sigmoid(addressing[..., m + 1]),
            shifts=nn.softmax(addressing[..., m + 2 : -1]),
            sharpening=1 + nn.softplus(addressing[..., -1]),
            erase=nn.sigmoid(erase),
            add=nn.tanh(add),
        )

    def _start(self, batch: int) -> NTMCarry:
        """State before the first step."""
        shape = self.width, self.slots
        if self.memory_init == "learned":
            memory = self.first_memory
        elif self.memory_init == "random":
            memory = _DEVIATION * jax.random.normal(jax.random.key(0), shape)
        else:
            memory = jnp.full(shape, _CONSTANT)
        heads = self.read_heads + self.write_heads
        state = None
        if self.controller == "lstm":
            state = jnp.broadcast_to(self.first_state, (batch, 1, 2 * self.hidden))
        reads = jnp.broadcast_to(self.first_reads, (batch, 1, self.first_reads.size))
        return NTMCarry(
            state=state,
            reads=nn.tanh(reads),
            memory=jnp.broadcast_to(memory, (batch, *shape)),
            weights=jnp.zeros((batch, heads, self.slots)).at[..., 0].set(1),
        )


class LSTM(nn.Module):
    """Stacked LSTM without a memory, the paper's baseline: section 4.

    Attributes:
        outputs: O, number of logits per step.
        hidden: D, width of each layer; 256 for copy and associative recall in the paper
            (table 3).
        layers: number of layers.
    """

    outputs: Annotated[int, SIZE]
    hidden: Annotated[int, SIZE] = 256
    layers: Annotated[int, LAYERS] = 3

    @nn.compact
    def __call__(self, inputs: jax.Array, *, train: bool) -> jax.Array:
        """Maps inputs [B, T, I] to logits [B, T, O]; `train` has no effect."""
        del train
        check_fields(self)
        x = inputs
        for layer in range(self.layers):
            name = f"layer_{layer}"
            x, _ = Recurrence("lstm", self.hidden, STANDARD, name=name)(x)
        return Dense(self.outputs, name="output")(x)
