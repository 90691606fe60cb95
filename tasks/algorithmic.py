"""The tasks of the Neural Turing Machine: bits in, bits out, paid for in bits.

Graves, Wayne and Danihelka (2014), section 4: copy, repeat copy, associative recall,
dynamic 6-grams and priority sort, as `data.algorithmic` makes them. The loss is the
cross-entropy of the answers alone, and what is reported is the paper's: the bits that
they cost a sequence. `evaluate` asks for sizes that training never showed, too.

Works with any model of `model.apply(variables, inputs [B, T, I], train=...) -> logits
[B, T, O]` that takes `outputs`. What it sows into the collection "attention", of the
axes [B, heads, T, N], is drawn.

Axes: B batch; T steps; I inputs; O outputs; N rows of a memory.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from data import algorithmic
from data.sizes import Batch, Batches
from errors import UserError
from training import plots
from training.state import TrainState
from training.supervised import Supervised
from training.task import Prediction

_ROWS = 100  # sequences evaluated at a time


class Algorithmic(Supervised):
    """Trains, scores and shows an algorithmic task; see the module's docstring."""

    metric = ("bits", "min")

    def __init__(self, config):
        """Checks what must fit together; see `Task`."""
        super().__init__(config)
        data = config.data
        self._kind = algorithmic.kind_of(data.kind)
        self._batches = algorithmic.batches(
            data.kind,
            smallest=data.smallest,
            largest=data.largest,
            buckets=data.buckets,
            rows=data.rows,
            seed=config.seed,
        )
        if config.evaluation.sequences < 1:
            raise UserError(
                f"config.evaluation.sequences is {config.evaluation.sequences}: "
                "must be at least 1"
            )
        for size in config.evaluation.sizes:
            algorithmic.held_out(data.kind, "validation", size, 1)
        self.model = config.architecture(outputs=self._kind.outputs, **config.model)
        self._answer = jax.jit(self._apply)
        self.check_model()

    def blank(self) -> jax.Array:
        """Returns inputs of the model of the right shapes."""
        return jnp.zeros((1, 2, self._kind.inputs))

    def train_data(self) -> Batches:
        """Returns the training batches."""
        return self._batches

    def loss(self, params, batch, rng):
        """Cross-entropy of the bits that are asked for; see `Supervised`."""
        variables = {"params": params}
        logits = self.model.apply(variables, batch["inputs"], train=True)
        nats = _nats(logits, batch)
        answers = batch["mask"].sum() * self._kind.outputs
        rows = jnp.asarray(len(logits), jnp.float32)
        metrics = {"bits": (nats / jnp.log(2.0), rows)}
        return nats, (answers.astype(jnp.float32), metrics)

    def _apply(self, params, inputs):
        """Logits [B, T, O], and what the model looked at."""
        logits, seen = self.model.apply(
            {"params": params}, inputs, train=False, mutable=["attention"]
        )
        return logits, {n: found[0] for n, found in seen.get("attention", {}).items()}

    def evaluate(
        self, state: TrainState, split: str, *, out_dir: Path | None = None
    ) -> dict[str, float]:
        """Scores sequences of each of `config.evaluation.sizes`; see `Task`.

        Args:
            state: whose parameters to use.
            split: "validation" or "test".
            out_dir: where the figures of a final evaluation go.

        Returns:
            Of the largest size of training `bits`, the mean a sequence, `per_bit`, the
            same for each bit that is asked for, and `wrong`, the share of bits that are
            guessed wrong, in per cent; of each size S `bits_S` and `wrong_S`, of S x R
            for a repeat copy of S vectors R times; for `ngrams` also `optimum`, the
            bits of the best predictor on the same sequences.
        """
        if out_dir is not None and plots.available():
            self._draw(state.params, split, out_dir / "figures")
        data, sizes = self.config.data, self.config.evaluation.sizes
        found = {
            size: self._score(state.params, split, size)
            for size in dict.fromkeys([data.largest, *sizes])
        }
        bits, wrong, batch = found[data.largest]
        scores = {"bits": bits, "per_bit": bits / self._asked(batch), "wrong": wrong}
        if data.kind == "ngrams":
            scores["optimum"] = float(algorithmic.optimal_bits(batch).mean())
        for size in sizes:
            name, (bits, wrong, _) = _name(size), found[size]
            scores |= {f"bits_{name}": bits, f"wrong_{name}": wrong}
        return scores

    def _score(self, params, split, size) -> tuple[float, float, Batch]:
        count = self.config.evaluation.sequences
        batch = _held_out(self.config.data.kind, split, size, count)
        nats = wrong = 0.0
        for start in range(0, count, _ROWS):
            part = {n: x[start : start + _ROWS] for n, x in batch.items()}
            logits, _ = self._answer(params, part["inputs"])
            nats += float(_nats(logits, part))
            missed = (np.asarray(logits) > 0) != (part["targets"] > 0)
            wrong += (missed & part["mask"][..., None]).sum()
        bits = nats / np.log(2) / count
        return bits, 100 * wrong / count / self._asked(batch), batch

    def _asked(self, batch: Batch) -> float:
        """Mean number of bits that are asked for in a sequence."""
        return float(batch["mask"].sum(1).mean()) * self._kind.outputs

    def figures(self, state: TrainState, out_dir: Path) -> list[Path]:
        """Draws a sequence of each size: what goes in and out, and where it looks."""
        return self._draw(state.params, "validation", out_dir)

    def predict(
        self,
        state: TrainState,
        inputs: Sequence[str],
        *,
        figures: Path | str | None = None,
    ) -> list[list[Prediction]]:
        """Answers sequences, written as `data.algorithmic.parse` takes them.

        Args:
            state: whose parameters to use.
            inputs: a sequence each; an empty one has the empty answer.
            figures: a folder for a picture of each sequence.

        Returns:
            For each input one answer: the vectors with the more probable value of each
            bit; of `ngrams` the probability of a one at each bit. Their score is the
            log-probability of these bits.

        Raises:
            UserError: for an input that is no such sequence.
        """
        if figures is not None:
            plots.require()
        kind, batches = self.config.data.kind, {}
        for line, text in enumerate(inputs, 1):
            if text.strip():
                try:
                    batches[line] = algorithmic.parse(kind, text)
                except UserError as error:
                    raise UserError(f"line {line}: {error}") from None
        answers = [[Prediction("", 0.0)] for _ in inputs]
        for line, batch in batches.items():
            logits, seen = self._answer(state.params, batch["inputs"])
            asked = np.asarray(logits[0])[batch["mask"][0]]
            best = -jax.nn.softplus(-jnp.abs(asked)).sum()
            answers[line - 1] = [Prediction(self._text(asked), float(best))]
            if figures is not None:
                path = Path(figures) / f"attention_{line:04d}.png"
                self._draw_one(batch, logits, seen, f"Line {line}: {kind}", path)
        return answers

    def _text(self, logits: np.ndarray) -> str:
        """Logits [answers, O] as text."""
        kind = self.config.data.kind
        if kind == "ngrams":
            return " ".join(f"{p:.2f}" for p in 1 / (1 + np.exp(-logits[:, 0])))
        bits = ["".join("01"[int(bit > 0)] for bit in row) for row in logits]
        if kind != "repeat_copy":
            return " ".join(bits)
        ends = logits[:, algorithmic.BITS] > 0
        rows = [row[: algorithmic.BITS] for row in bits]
        return " ".join("end" if end else r for r, end in zip(rows, ends, strict=True))

    def _draw(self, params, split: str, folder: Path) -> list[Path]:
        data, sizes = self.config.data, self.config.evaluation.sizes
        paths = []
        for size in dict.fromkeys([data.largest, *sizes]):
            batch = _held_out(data.kind, split, size, 1)
            logits, seen = self._answer(params, batch["inputs"])
            bits = float(_nats(logits, batch) / np.log(2))
            name = _name(size)
            title = f"{data.kind}, size {name}: {bits:.3g} bits ({split} split)"
            path = folder / f"{data.kind}_{name}_{split}.png"
            paths.append(self._draw_one(batch, logits, seen, title, path))
        return paths

    def _draw_one(self, batch, logits, seen, title: str, path: Path) -> Path:
        asked = batch["mask"][0]
        outputs = np.where(asked[:, None], jax.nn.sigmoid(logits[0]), 0)
        targets = batch["targets"][0]
        inputs = batch["inputs"][0]
        inputs = inputs / np.maximum(1, np.abs(inputs).max(0))  # a count goes further
        panels = {"input": inputs, "target": targets, "output": outputs}
        signed = ["error"] + ["input"] * bool(inputs.min() < 0)
        panels = {n: x.T for n, x in (panels | {"error": outputs - targets}).items()}
        for name in sorted(seen, reverse=True):  # writing first
            heads = np.asarray(seen[name][0])
            for head, weights in enumerate(heads, 1):
                title_of = name.replace("_", " ") + f" {head}" * (len(heads) > 1)
                panels[title_of] = weights.T
        return plots.sequence_maps(panels, title, path, signed=signed)


def _nats(logits, batch):
    """Cross-entropy of the bits that are asked for."""
    nats = optax.sigmoid_binary_cross_entropy(logits, batch["targets"])
    return jnp.sum(nats * batch["mask"][..., None])


def _name(size: int | tuple[int, int]) -> str:
    return "x".join(map(str, size)) if isinstance(size, tuple) else str(size)


@functools.lru_cache(maxsize=32)
def _held_out(kind: str, split: str, size: Any, count: int) -> Batch:
    return algorithmic.held_out(kind, split, size, count)
