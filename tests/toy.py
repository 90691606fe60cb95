"""A task that trains within a second: an MLP with dropout fits a sine."""

import sys
import types
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base.fields import Fields
from base.ranges import BATCH, FRACTION, SIZE
from tasks.common.batches import rows_of, take
from training import configuration
from training.objective import Supervised
from training.optimizers import adam, make_optimizer
from training.task import Prediction, Task


def get_config(variant=""):
    if variant not in ("", "smoke"):
        raise ValueError(f"the variant is smoke or none, got {variant}")
    config = configuration.defaults(Toy)
    config.optimizer = adam(0.01, warmup=3, b2=0.98, eps=1e-9, clip=1.0)
    config.optimizer.update({"decay_steps": 12, "accumulate": 1})
    config.train_steps = 12
    config.eval_every = 4
    config.save_every = 3
    config.log_every = 5
    config.checkpoints.keep = 2
    return config


class Source:
    """Batches of the sizes in `data.batch_size`, in turn."""

    def __init__(self, config):
        self.data, self.seed = config.data, config.seed

    def __getitem__(self, index):
        rng = np.random.default_rng((self.seed, index))
        size = self.data.batch_size[index % len(self.data.batch_size)]
        x = rng.normal(size=(size, self.data.inputs)).astype(np.float32)
        weight = (rng.random(size) < 0.7).astype(np.float32)  # 0 for filler
        return {"x": x, "y": np.sin(x.sum(1)), "weight": weight}

    def part(self, index, pieces, count):
        batch = self[index]
        return take(batch, rows_of(pieces, count, len(batch["x"])))


class ToyModel(Fields):
    width: Annotated[int, SIZE] = 16
    dropout: Annotated[float, FRACTION] = 0.1
    name: str = "toy"


class ToyData(Fields):
    batch_size: Annotated[tuple[int, ...], BATCH.each()] = (16, 32)
    inputs: Annotated[int, SIZE] = 3
    shuffle: bool = True


class ToyConfig(configuration.Config):
    model: ToyModel = ToyModel()
    optimizer: ConfigDict
    data: ToyData = ToyData()


class Toy(Task):
    Config = ToyConfig
    metric = ("error", "min")

    @classmethod
    def prepare(cls, config, workdir, *, training):
        (workdir / "assets").mkdir(exist_ok=True)

    def __init__(self, config, assets=None):
        self.config = config
        self.objective = Supervised(
            self.init_params,
            self.loss,
            make_optimizer(config),
            accumulate=config.optimizer.accumulate,
        )

    def init_params(self, rng):
        first, second = jax.random.split(rng)
        width, inputs = self.config.model.width, self.config.data.inputs
        return {
            "in": jax.random.normal(first, (inputs, width)),
            "bias": jnp.zeros(width),
            "out": jax.random.normal(second, (width,)) / width**0.5,
        }

    def train_data(self):
        return Source(self.config)

    def loss(self, params, batch, rng, state=None):
        """Returns (sum, (count, metrics)) of squared errors, without filler."""
        hidden = jnp.tanh(batch["x"] @ params["in"] + params["bias"])
        if rng is not None and (rate := self.config.model.dropout):
            mask = jax.random.bernoulli(rng, 1 - rate, hidden.shape)
            hidden = hidden * mask / (1 - rate)
        error = jnp.square(hidden @ params["out"] - batch["y"]) * batch["weight"]
        count = batch["weight"].sum()
        return error.sum(), (count, {"tokens": (count, count)})

    def examples(self, split, *, full=True):
        return {split: [Source(self.config)[10**6]]}

    def answers(self, state, examples, options=None, *, attention=False):
        return examples

    def score(self, state, evaluation):
        (batch,) = evaluation.examples[evaluation.split]
        error, (count, _) = self.loss(state.params, batch, None)
        return {"error": float(error / count)}

    def drawn(self, split):
        return {}

    def parse(self, line, options):
        return line

    def show(self, example, answer):
        return Prediction(example, 0.0)

    def figures(self, state, evaluation, folder):
        path = folder / "step.png"
        path.write_bytes(PIXEL)
        return [path]


# A run can be loaded again only if its task is in a module of tasks/.
sys.modules["tasks.toy"] = types.ModuleType("tasks.toy")
sys.modules["tasks.toy"].Toy = Toy
Toy.__module__ = "tasks.toy"

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c6360000000020001"
    "48afa4710000000049454e44ae426082"
)
