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
from generation import beam_search
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


def training(task, config):
    """Returns a function of a batch that takes one step and waits for it."""
    layout, rng = Layout(config.mesh, config.parallel), jax.random.key(0)
    like = layout.abstract(task.init_state, rng)
    step = layout.compile(task.train_step, like)
    state = layout.init(task.init_state, rng, like)

    def run(batch) -> None:
        nonlocal state
        state, metrics = step(state, layout.put(batch), rng)
        jax.block_until_ready(metrics)

    return run, sum(x.size for x in jax.tree.leaves(like.params))


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


def decoding(task, spec: dict):
    """Returns a function that decodes one batch, and the number of parameters."""
    model, rows, beam, length = task.model, spec["rows"], spec["beam"], spec["target"]
    variables = {"params": jax.jit(task.init_state)(jax.random.key(0)).params}

    @jax.jit
    def translate(variables, source):
        memory = model.apply(variables, source, method="encode")
        never = jnp.full((rows, beam, 1), -1e4)

        def step(carry, token):
            carry, logits, _ = model.apply(
                variables, carry, token, memory, method="step"
            )
            # Without an early EOS every hypothesis runs to the last step.
            logits = jax.lax.dynamic_update_slice_in_dim(logits, never, EOS, axis=2)
            return carry, logits, None

        carry = model.apply(variables, memory, beam, length, method="start")
        alpha = spec["alpha"]
        return beam_search(
            step, carry, batch=rows, beam=beam, max_length=length, alpha=alpha
        )

    source = random_ids(spec, spec["source"])

    def step() -> float:
        decoded = jax.block_until_ready(translate(variables, source))
        assert (decoded.lengths == length).all()
        return rows

    return step, sum(x.size for x in jax.tree.leaves(variables))


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
        task = config.task(config)
        task.prepare(Path(spec["folder"]), training=True)
        batches = task.train_data()
        run, info["parameters"] = training(task, config)
        info["padding"] = round(batches.padding(), 3)
        shapes = {sizes(batches[i]): i for i in range(len(batches))}
        indices = itertools.chain(shapes.values(), itertools.count())
        compiled = len(shapes)

        def step() -> float:
            batch = batches[next(indices)]
            run(batch)
            return int(np.count_nonzero(batch["target"]))

    elif mode in ("generated", "captions"):
        task = config.task(config)
        run, info["parameters"] = training(task, config)
        if mode == "generated":
            batch = task.train_data()[0]
        else:
            shape = spec["rows"], *task.blank()["source"].shape[1:]
            maps = np.random.default_rng(0).random(shape, np.float32)
            batch = {"source": maps, "target": random_ids(spec, spec["target"])}
        like = jax.eval_shape(task.init_state, jax.random.key(0))
        work = gflop(task.train_step, like, batch, jax.random.key(0))
        info["gflop"] = round(work, 2)

        def step() -> float:
            run(batch)
            return spec["units"]

    elif mode == "step":
        task = config.task(config)
        run, info["parameters"] = training(task, config)
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
