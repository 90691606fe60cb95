"""Bag-of-words classification of sentences: mostly odd or mostly even words."""

from typing import Annotated

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from base import asset_files
from base.fields import Fields
from base.options import Options
from base.ranges import POSITIVE, PROBABILITY, SIZE, Range
from figures.charts import bars
from tasks.common.batches import EndlessBatches, take
from tasks.common.splits import held_out_rng
from training import checks
from training.configuration import ModelConfig
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.task import Prediction, Stacked, Task


class Classifier(nn.Module):  # logistic regression on bags minus the mean bag
    scale: Annotated[float, POSITIVE] = 1.0

    @nn.compact
    def __call__(self, bag, mean):
        return self.scale * nn.Dense(1)(bag - mean)[:, 0]


def sample(rng, words, count):
    label = rng.integers(0, 2, count)
    rates = np.where(np.arange(words) % 2 == label[:, None], 0.9, 0.3)
    return {"bag": np.float32(rng.poisson(rates)), "label": np.float32(label)}


class Objective(Supervised):  # tracks the mean bag and the best accuracy
    def step(self, state, batch, rng):
        state, metrics = super().step(state, batch, rng)
        mean = 0.9 * state.extra["mean"] + 0.1 * batch["bag"].mean(0)
        return state.replace(extra=state.extra | {"mean": mean}), metrics

    def after_evaluation(self, state, scores):
        best = jnp.maximum(state.extra["best"], scores["accuracy"])
        return state.replace(extra=state.extra | {"best": best})


class BagOptions(Options):
    # Minimum probability of an odd answer.
    threshold: Annotated[float, PROBABILITY] = 0.5


class BagData(Fields):
    words: Annotated[int, Range(2, 1000, whole=True)] = 11
    batch_size: Annotated[int, SIZE] = 32


class BagConfig(ModelConfig):
    data: BagData = BagData()


class BagOfWords(Task):
    metric = ("accuracy", "max")
    Config = BagConfig
    Options = BagOptions
    table = "correct", ("correct",)
    figure_name = "words"

    @classmethod
    def prepare(cls, config, workdir, *, training):
        path = workdir / "assets" / "words.txt"
        if training:
            asset_files.write(path, " ".join(f"w{i}" for i in range(config.data.words)))
        return path.read_text().split()

    def __init__(self, config, assets):
        self.config, self.words = config, assets
        self.model = checks.build_model(config)
        zeros = jnp.zeros(config.data.words)
        self.objective = Objective(
            lambda rng: self.model.init(rng, zeros[None], zeros)["params"],
            self.loss,
            make_optimizer(config),
            extra={"mean": zeros, "best": jnp.zeros(())},
        )

    def train_data(self):
        data = self.config.data

        def make(rng, index, rows):  # of the batch of a step
            return take(sample(rng, data.words, data.batch_size), rows)

        return EndlessBatches(make, data.batch_size, self.config.seed)

    def logits(self, params, batch, state):
        return self.model.apply({"params": params}, batch["bag"], state.extra["mean"])

    def loss(self, params, batch, rng, state):
        logits = self.logits(params, batch, state)
        losses = optax.sigmoid_binary_cross_entropy(logits, batch["label"])
        return losses.sum(), (jnp.asarray(losses.size, jnp.float32), {})

    def examples(self, split, *, full=True):
        return {split: Stacked(sample(held_out_rng(split), len(self.words), 500))}

    def outputs(self, state, batch, attention):  # probabilities of an odd answer
        return nn.sigmoid(self.logits(state.params, batch, state))

    def score(self, state, evaluation):
        label = evaluation.examples[evaluation.split].arrays["label"]
        correct = (evaluation.answers[evaluation.split].arrays > 0.5) == label
        return {"accuracy": 100 * float(correct.mean())}

    def row(self, number, example, answer):
        return [int((answer > 0.5) == example["label"])]

    def parse(self, line, options):
        counts = [line.split().count(word) for word in self.words]
        return {"bag": np.float32(counts), "limit": np.float32(options.threshold)}

    def show(self, example, answer):
        text = "odd" if answer >= example.get("limit", 0.5) else "even"
        return Prediction(text, float(answer), details=example["bag"])

    def draw(self, prediction, title, path):
        heights = dict(zip(self.words, prediction.details, strict=True))
        title = f"{title}: {prediction.text}"
        return bars(heights, title, path, axis_title="word", value_title="value")

    def figures(self, state, evaluation, folder):
        weights = np.asarray(state.params["Dense_0"]["kernel"][:, 0])
        every, name = Prediction("all", 0.0, details=weights), evaluation.split
        return [self.draw(every, "Weights", folder / f"weights_{name}.png")]
