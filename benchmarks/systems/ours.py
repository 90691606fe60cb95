"""This project's own code, the way `train.py` and `eval.py` run it.

Modes: "step" is one training step of a translator on random tokens, "decode" one batch
of its beam search, "tokens" training steps on the configured corpus; "generated" is one
training step of a task that makes its own data, on its first batch; "captions" one of a
captioner on random maps and words.
"""

import importlib
import itertools
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.systems import worker
from generation import Generator, Search
from training import configuration, runtime
from training.parallel import Layout

EOS = 2


def make_config(spec: dict):
    """Returns the default config of a model with the sizes of `spec`."""
    model = spec.get("model", "transformer")
    config = importlib.import_module(f"configs.{model}_nmt").get_config()
    with config.unlocked():
        config.data.vocab_size = spec["vocab_size"]
        config.loss.smoothing = spec["smoothing"]
        config.optimizer.clip = 0.0  # the others do not clip
        for name in config.model:
            both = name.endswith("layers")  # as many on each side
            if (given := "layers" if both else name) in spec:
                config.model[name] = spec[given]
    return config


def training(config, folder: Path | None = None):
    """Returns a task, a step of it, and its number of parameters.

    The step is a function of a batch, and waits for its end.

    Args:
        config: of the task.
        folder: for its assets; None where the sizes of the config are enough.
    """
    layout, rng = Layout(config.mesh, config.parallel), jax.random.key(0)
    assets = config.task.prepare(config, folder, training=True) if folder else None
    task = config.task(config, assets, axis_name=layout.axis_name)
    like = layout.abstract(task.objective.init, rng)
    step = layout.compile(task.objective.step, like)
    state = layout.init(task.objective.init, rng, like)

    def run(batch) -> None:
        nonlocal state
        state, metrics = step(state, layout.put(batch), rng)
        jax.block_until_ready(metrics)

    return task, run, sum(x.size for x in jax.tree.leaves(like.params))


def gflop(function, *args) -> float:
    """GFLOP of the products and convolutions of a function, as often as they are run.

    Args:
        function: what jax can trace, without loops whose end is not known.
        *args: of it; shapes are enough.
    """
    return 1e-9 * _flop(jax.make_jaxpr(function)(*args).jaxpr)


def _flop(jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name in ("dot_general", "conv_general_dilated"):
            numbers = params["dimension_numbers"]
            given = [x.aval.shape for x in equation.invars]
            if name == "dot_general":
                each = math.prod(given[0][axis] for axis in numbers[0][0])
            else:
                each = math.prod(given[1][axis] for axis in numbers.rhs_spec[1:])
            total += 2 * each * equation.outvars[0].aval.size
        times = params["length"] if name == "scan" else 1
        for value in jax.tree.leaves(list(params.values())):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += times * _flop(inner)
    return total


def random_ids(spec: dict, length: int) -> np.ndarray:
    """[rows, length] int32 without padding, EOS at the end."""
    shape = spec["rows"], length
    ids = np.random.default_rng(0).integers(4, spec["vocab_size"], shape, np.int32)
    ids[:, -1] = EOS
    return ids


def sizes(batch) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of a batch: each is compiled once."""
    return tuple(ids.shape for ids in batch.values())


def endless(step, carry, source, rows):
    """Keeps every hypothesis from ending before the last step: a `Constraint`."""
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
        return spec["rows"]

    return step, sum(x.size for x in jax.tree.leaves(params))


def main() -> None:
    """Serves the mode."""
    mode, spec = worker.arguments()
    if mode in ("generated", "captions"):
        config = configuration.read(spec["config"], spec["overrides"])
    else:
        config = make_config(spec)
    runtime.start(cores=config.parallel == "cores")
    jax.config.update("jax_enable_compilation_cache", False)  # so that it is timed
    info = {"versions": runtime.environment()["versions"]}
    compiled = 1  # first calls, each of which compiles
    if mode == "tokens":
        config.data.tokens = spec["tokens"]
        config.data.segmentations = 1  # the best segmentations, as the others train on
        task, run, info["parameters"] = training(config, Path(spec["folder"]))
        batches = task.train_data()
        info["padding"] = round(batches.padding(), 3)
        shapes = {sizes(batches[i]): i for i in range(len(batches))}
        indices = itertools.chain(shapes.values(), itertools.count())
        compiled = len(shapes)

        def step() -> float:
            batch = batches[next(indices)]
            run(batch)
            return int(np.count_nonzero(batch["target"]))

    elif mode in ("generated", "captions"):
        task, run, info["parameters"] = training(config)
        if mode == "generated":
            batch = task.train_data()[0]
        else:
            shape = spec["rows"], *task.data.blank().shape[1:]
            maps = np.random.default_rng(0).random(shape, np.float32)
            batch = {"source": maps, "target": random_ids(spec, spec["target"])}
        like = jax.eval_shape(config.task(config).objective.init, jax.random.key(0))
        step = config.task(config).objective.step  # of one device
        work = gflop(step, like, batch, jax.random.key(0))
        info["gflop"] = round(work, 2)

        def step() -> float:
            run(batch)
            return spec["units"]

    elif mode == "step":
        task, run, info["parameters"] = training(config)
        batch = {name: random_ids(spec, spec[name]) for name in ("source", "target")}

        def step() -> float:
            run(batch)
            return batch["target"].size

    else:
        step, info["parameters"] = decoding(config.task(config), spec)

    def passed() -> float:
        start = time.perf_counter()
        for _ in range(compiled):
            step()
        return time.perf_counter() - start

    info["compile_s"] = round(passed() - passed(), 1)
    worker.serve(step, info, warmup=0)


if __name__ == "__main__":
    main()
