"""The Neural Turing Machine, and the LSTM that it is held against.

Graves, Wayne and Danihelka (2014): a controller, recurrent or not, that reads and
writes a memory through heads. What a head does is in `attention.memory`; here is what
tells it to.

Axes: B batch; T steps; I inputs; O outputs; D width of the controller; R heads that
read; W that write; H = R + W; N rows of the memory; M width of a row; J shifts; G gates
of the controller; P what the heads are told in a step.

Differs from the paper, or is left open by it: all heads look at the memory as it was
before the step, and the controller's output sees what is read in the same step; a head
begins at row 0, and not at weights that are learned, so that the memory may have any
size; a feed-forward controller is one layer of tanh; the random memory is one draw.
From Collier and Beel (2018), section 3, are softplus for the key strength, 1 + softplus
for the sharpening, tanh for keys and what is added, and the constant memory, which they
found to learn fastest. The gradient is bounded on its way from step to step, and not
only at its end.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.memory import access
from models.layers import Dense, check_fields
from models.recurrent import CELLS, STANDARD, CellWeights, Gates, Recurrence, scan

_CONSTANT = 1e-6  # of the constant memory
_SPREAD = 0.5  # standard deviation of the random one
_STEEPEST = 100.0  # of the gradient from step to step, for a loss in nats


@jax.custom_vjp
def _bounded(carry):
    """What a step hands on; each number of its gradient is kept within bounds.

    A head that sharpens a tie, step after step, multiplies its gradient by gamma each
    time: without bounds that is infinite after a hundred steps or two.
    """
    return carry


def _bounded_backward(_, gradients):
    return (jax.tree.map(lambda g: jnp.clip(g, -_STEEPEST, _STEEPEST), gradients),)


_bounded.defvjp(lambda carry: (carry, None), _bounded_backward)


class NeuralTuringMachine(nn.Module):
    """Reads a sequence and answers at every step.

    Attributes:
        outputs: O.
        controller: "lstm" or "feedforward".
        hidden: D.
        read_heads: R.
        write_heads: W.
        rows: N; no parameter depends on it, unless the memory's start is learned.
        width: M.
        shifts: J, odd: a head moves at most J // 2 rows a step.
        memory_init: what the memory holds at first: "constant" (1e-6), "learned", or
            "random" (normal, the same in every sequence and run).

    Raises:
        ValueError: when it is built, for a field that is out of range.
    """

    outputs: int
    controller: str
    hidden: int
    read_heads: int
    write_heads: int
    rows: int
    width: int
    shifts: int
    memory_init: str

    def setup(self):
        """Checks the fields and creates the parameters."""
        check_fields(
            self,
            {
                "controller": ("lstm", "feedforward"),
                "memory_init": ("constant", "learned", "random"),
            },
            *[("hidden", "read_heads", "write_heads", "rows", "width", "shifts")],
        )
        if self.shifts % 2 == 0 or self.shifts > self.rows:
            raise ValueError(
                f"shifts is {self.shifts}: must be odd and at most rows={self.rows}"
            )
        n, zeros = self.hidden, nn.initializers.zeros
        if self.controller == "lstm":
            self.gates = Gates("lstm", n, STANDARD)
            self.recurrent = CellWeights("lstm", n, STANDARD)
            self.first_state = self.param("first_state", zeros, (2 * n,))
        else:
            self.gates = Dense(n)
        entering = 4 * n if self.controller == "lstm" else n
        emitted = (self.read_heads + self.write_heads) * self._told
        emitted += 2 * self.write_heads * self.width
        read = self.read_heads * self.width
        kernel = STANDARD.kernel
        self.from_reads = self.param("from_reads", kernel, (read, entering))
        self.to_heads = self.param("to_heads", kernel, (n, emitted))
        self.to_heads_bias = self.param("to_heads_bias", zeros, (emitted,))
        self.first_reads = self.param("first_reads", zeros, (read,))
        if self.memory_init == "learned":
            start = nn.initializers.normal(_SPREAD)
            self.first_memory = self.param("memory", start, (self.width, self.rows))
        self.output = Dense(self.outputs)

    @property
    def _told(self) -> int:
        """What each head is told: key, strength, gate, shifts, sharpening."""
        return self.width + 3 + self.shifts

    def __call__(self, inputs: jax.Array, *, train: bool) -> jax.Array:
        """Answers at every step. Weights are sown into the collection "attention".

        Args:
            inputs: [B, T, I].
            train: without effect; there is no dropout.

        Returns:
            [B, T, O] logits.
        """
        del train
        batch = inputs.shape[0]
        gates = jnp.swapaxes(self.gates(inputs), 0, 1)[:, :, None]  # [T, B, 1, G]
        weights = {"reads": self.from_reads, "heads": self.to_heads}
        state = jnp.zeros((batch, 1, 0))
        if self.controller == "lstm":
            weights |= {f"cell/{n}": w for n, w in self.recurrent().items()}
            state = jnp.broadcast_to(self.first_state, (batch, 1, 2 * self.hidden))
        heads = self.read_heads + self.write_heads
        first = jnp.zeros((batch, heads, self.rows)).at[..., 0].set(1)
        reads = jnp.broadcast_to(self.first_reads, (batch, 1, self.first_reads.size))
        carry = state, nn.tanh(reads), self._memory(batch), first
        bias = self.to_heads_bias
        _, (hidden, reads, looked) = scan(self._advance, weights, bias, carry, gates)
        hidden, reads, looked = (
            jnp.swapaxes(x, 0, 1) for x in (hidden[:, :, 0], reads[:, :, 0], looked)
        )
        looked = jnp.swapaxes(looked, 1, 2)  # [B, H, T, N]
        self.sow("attention", "read_weights", looked[:, : self.read_heads])
        self.sow("attention", "write_weights", looked[:, self.read_heads :])
        return self.output(jnp.concatenate([hidden, reads], axis=-1))

    def _memory(self, batch: int) -> jax.Array:
        """[B, M, N], the memory before the first step, transposed."""
        shape = self.width, self.rows
        if self.memory_init == "learned":
            memory = self.first_memory
        elif self.memory_init == "random":
            memory = _SPREAD * jax.random.normal(jax.random.key(0), shape)
        else:
            memory = jnp.full(shape, _CONSTANT)
        return jnp.broadcast_to(memory, (batch, *shape))

    @nn.nowrap
    def _advance(self, product, bias, carry, gates):
        """One step; see `models.recurrent.scan`."""
        state, reads, memory, looked = carry
        gates = gates + product(reads, "reads")
        if self.controller == "lstm":
            state = CELLS["lstm"].step(product, "cell", gates, state)
            hidden = state[..., : self.hidden]
        else:
            hidden = nn.tanh(gates)
        emitted = (product(hidden, "heads") + bias)[:, 0]
        found = access(memory, looked, **self._tell(emitted))
        reads = found.contexts.reshape(reads.shape)
        carry = _bounded((state, reads, found.columns, found.weights))
        return carry, (hidden, reads, found.weights)

    @nn.nowrap
    def _tell(self, emitted: jax.Array) -> dict[str, jax.Array]:
        """Cuts [B, P] into what the heads are told, each in its range."""
        heads = self.read_heads + self.write_heads
        batch, m, shifts = len(emitted), self.width, self.shifts
        told, written = jnp.split(emitted, [heads * self._told], axis=-1)
        told = told.reshape(batch, heads, self._told)
        erase, add = jnp.split(written.reshape(batch, self.write_heads, 2 * m), 2, -1)
        return {
            "key": nn.tanh(told[..., :m]),
            "strength": nn.softplus(told[..., m]),
            "gate": nn.sigmoid(told[..., m + 1]),
            "shifts": nn.softmax(told[..., m + 2 : m + 2 + shifts]),
            "sharpening": 1 + nn.softplus(told[..., m + 2 + shifts]),
            "erase": nn.sigmoid(erase),
            "add": nn.tanh(add),
        }


class LSTM(nn.Module):
    """The paper's baseline (section 4): layers of LSTM without a memory to look at.

    Attributes:
        outputs: O.
        hidden: D, of each layer.
        layers: how many.

    Raises:
        ValueError: when it is built, for a field that is out of range.
    """

    outputs: int
    hidden: int
    layers: int

    @nn.compact
    def __call__(self, inputs: jax.Array, *, train: bool) -> jax.Array:
        """[B, T, I] to logits [B, T, O]; `train` has no effect."""
        del train
        check_fields(self, {}, ("hidden", "layers"))
        x, everywhere = inputs, jnp.ones(inputs.shape[:2], bool)
        for layer in range(self.layers):
            read = Recurrence("lstm", self.hidden, STANDARD, name=f"layer_{layer}")
            x, _ = read(x, everywhere)
        return Dense(self.outputs, name="output")(x)
