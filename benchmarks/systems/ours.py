"""This project's code, run as `train.py` and `eval.py` run it.

Modes: "step" is one training step of a translator on random tokens; "decode" is beam
search of one batch; "tokens" is training steps on the corpus of the config; "generated"
is one training step, on the first batch, of a task with generated data; "captions" is
one training step of a captioner on random maps and words; "rollout" is the steps of
environments before an update of an agent, with uniform actions.
"""

import importlib
import itertools
import math
import tempfile
import time
import types
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from generation.search import Generator, Search
from tasks.captioning.inputs import CaptionData
from tasks.captioning.task import Captioning
from tasks.images.task import Adversarial, Assets
from training import configuration, runtime
from training.optimizers import adam
from training.parallel import Layout

EOS = 2


# Fields that make a model the one of the other libraries, whatever this project's
# defaults are.
PINNED = {
    "transformer": {"positions": "sinusoidal", "norm": "pre", "dtype": "float32"}
    | dict.fromkeys(("encoder_score", "decoder_score", "cross_score"), "scaled_dot")
    | {"cross_alignment": "global"},
    "bahdanau": {"alignment": "global"},
    "luong": {"alignment": "global", "input_feeding": True},
}


def make_config(spec: dict):
    """Returns the config of a translator with the sizes of `spec`, trained by Adam.

    `clip` of `spec` bounds the norm of the gradients; by default there is no bound.
    """
    model = spec.get("model", "transformer")
    config = importlib.import_module(f"configs.{model}_nmt").get_config()
    with config.unlocked():
        config.data.vocab_size = spec["vocab_size"]
        config.loss.smoothing = spec["smoothing"]
        clip = spec.get("clip", 0.0)
        config.optimizer = adam(1e-4, b2=0.98, eps=1e-9, clip=clip)
        config.optimizer.accumulate = 1
        config.model.update(PINNED[model])
        for name in config.model:
            # The encoder and the decoder have the same number of layers.
            field = "layers" if name.endswith("layers") else name
            if field in spec:
                config.model[name] = spec[field]
    return config


def read_config(mode: str, spec: dict):
    """Returns the config that a mode runs."""
    if "config" in spec:
        return configuration.read(spec["config"], spec["overrides"])
    return make_config(spec)


def stand_in(config):
    """Returns assets for a task whose data are not read: sizes of the model."""
    if config.task is Adversarial:
        return Assets()
    vocabulary = types.SimpleNamespace(size=config.data.get("vocab_size"), decode=None)
    if config.task is Captioning:
        return CaptionData(config, vocabulary)
    return types.SimpleNamespace(vocabulary=vocabulary)


def training(config, assets):
    """Returns a task, its training step, and its number of parameters.

    The step takes a batch and waits until the update is computed.
    """
    layout, rng = Layout(config.mesh, config.parallel), jax.random.key(0)
    task = config.task(config, assets)
    abstract_state = layout.abstract(task.objective.init, rng)
    step = layout.jitted(task.objective.step, abstract_state)
    state = layout.init(task.objective.init, rng, abstract_state)

    def run(batch) -> None:
        nonlocal state
        state, metrics = step(state, layout.shard_batch(batch), rng)
        jax.block_until_ready((state, metrics) if layout.blocks else metrics)

    return task, run, sum(x.size for x in jax.tree.leaves(abstract_state.params))


def gflop(function, *args) -> float:
    """Returns the GFLOP of the matrix products and convolutions in a function call.

    A product inside a scan counts once per iteration.

    The function is traceable by jax, without while loops of unknown length; of its
    arguments, shapes are enough.
    """
    return 1e-9 * _flop(jax.make_jaxpr(function)(*args).jaxpr)


def _flop(jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name in ("dot_general", "conv_general_dilated"):
            numbers = params["dimension_numbers"]
            shapes = [x.aval.shape for x in equation.invars]
            if name == "dot_general":
                products = math.prod(shapes[0][axis] for axis in numbers[0][0])
            else:
                products = math.prod(shapes[1][axis] for axis in numbers.rhs_spec[1:])
            total += 2 * products * equation.outvars[0].aval.size
        iterations = params["length"] if name == "scan" else 1
        for value in jax.tree.leaves(list(params.values())):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += iterations * _flop(inner)
    return total


def random_ids(spec: dict, length: int) -> np.ndarray:
    """Returns int32 ids [batch size, length] without padding, EOS at the end."""
    shape = spec["batch_size"], length
    ids = np.random.default_rng(0).integers(4, spec["vocab_size"], shape, np.int32)
    ids[:, -1] = EOS
    return ids


def sizes(batch) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of a batch; each combination is compiled once."""
    return tuple(ids.shape for ids in batch.values())


def endless(step, carry, source, rows):
    """A search constraint that keeps hypotheses from ending before the last step."""
    never = jnp.full((len(source), rows, 1), -1e4)

    def constrained(carry, token):
        carry, logits, weights = step(carry, token)
        logits = jax.lax.dynamic_update_slice_in_dim(logits, never, EOS, axis=2)
        return carry, logits, weights

    return constrained, carry


def decoding(task, spec: dict):
    """Returns a function that decodes one batch, and the number of parameters."""
    length, search = spec["target"], Search(spec["beam"], spec["alpha"]).check()
    params = jax.jit(task.objective.init)(jax.random.key(0)).params
    generator = Generator(task.model, constrain=endless)
    source = random_ids(spec, spec["source"])

    def step() -> float:
        decoded = generator.decode(params, source, search, length=length)
        decoded = jax.block_until_ready(decoded)
        assert (decoded.lengths == length).all()
        return spec["batch_size"]

    return step, sum(x.size for x in jax.tree.leaves(params))


class Uniform(NamedTuple):
    """A policy without parameters or memory, whose actions are equally likely."""

    actions: int

    def start(self, batch: int) -> None:
        """Returns no memory."""

    def apply(self, variables, memory, observation, method: str) -> tuple:
        """Returns no memory, logits and values of 0."""
        batch = len(observation["position"])
        return memory, jnp.zeros((batch, self.actions)), jnp.zeros(batch)


def acting(task):
    """Returns a function that runs environments with uniform actions."""
    state = jax.jit(task.objective.init)(jax.random.key(0))
    task.objective.policy = Uniform(task.objective.environment.actions)
    rollout = jax.jit(task.objective.rollout)
    running = state.extra["running"]._replace(memory=None)
    batches, indices = task.train_data(), itertools.count()

    def step() -> float:
        nonlocal running
        seed = batches[next(indices)]["seed"]
        steps, running = rollout(state.params, seed, running)
        return jax.block_until_ready(steps).action.size

    return step


def build(mode: str, spec: dict):
    """Returns the step of the mode, the facts about it, and no warm-up."""
    config = read_config(mode, spec)
    runtime.start(cores=config.parallel == "cores")
    jax.config.update("jax_enable_compilation_cache", False)  # compilation is timed
    info = {"versions": runtime.environment()["versions"]}
    compiled = 1  # number of first calls, each of which compiles
    if mode == "tokens":
        config.data.tokens = spec["tokens"]
        config.data.segmentations = 1  # the best segmentation, as in JoeyNMT
        assets = config.task.prepare(config, Path(spec["folder"]), training=True)
        task, run, info["parameters"] = training(config, assets)
        batches = task.train_data()
        info["padding"] = round(batches.padding(), 3)
        shapes = {sizes(batches[i]): i for i in range(len(batches))}
        indices = itertools.chain(shapes.values(), itertools.count())
        compiled = len(shapes)

        def step() -> float:
            batch = batches[next(indices)]
            run(batch)
            return int(np.count_nonzero(batch["target"]))

    elif mode == "decode":
        step, info["parameters"] = decoding(config.task(config, stand_in(config)), spec)
    elif mode == "rollout":
        step = acting(config.task(config, None))
    else:
        assets = stand_in(config)
        if spec.get("prepares"):
            with tempfile.TemporaryDirectory() as folder:
                assets = config.task.prepare(config, Path(folder), training=True)
        task, run, info["parameters"] = training(config, assets)
        if mode == "generated":
            batch = task.train_data()[0]
        else:
            batch = {
                x: random_ids(spec, spec[x]) for x in ("source", "target") if x in spec
            }
        if mode == "captions":
            shape = spec["batch_size"], *task.data.blank().shape[1:]
            batch["source"] = np.random.default_rng(0).random(shape, np.float32)
        single = config.task(config, assets).objective  # of a single device
        like = jax.eval_shape(single.init, jax.random.key(0))
        info["gflop"] = round(gflop(single.step, like, batch, jax.random.key(0)), 2)
        units = batch["target"].size if mode == "step" else spec["units"]

        def step() -> float:
            run(batch)
            return units

    def time_first_calls() -> float:
        start = time.perf_counter()
        for _ in range(compiled):
            step()
        return time.perf_counter() - start

    info["compile_s"] = round(time_first_calls() - time_first_calls(), 1)
    return step, info, 0
