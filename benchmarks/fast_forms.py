"""Gains of the fast forms of `attention.fast`, in training steps that use them.

    python -m benchmarks fast_forms
    python -m benchmarks fast_forms --only relative scan

The step of a config is compiled with the fast form and with the plain one; blocks of
both alternate in one process, on the same batch, which has the most frequent shape. A
form stays in `attention/fast/` if it saves at least 10 % of the step of a model on one
of the CPUs where it was measured. Writes the record.
"""

import collections
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

import attention.memory
import attention.relative
from attention.fast import (
    bags,
    convolution,
    dropout,
    linear,
    memory,
    pooled_attention,
    relative,
    tape,
)
from attention.fast import scan as deferred
from attention.feedforward import feedforward_attention
from benchmarks import harness
from training import configuration, runtime
from training.task import Task, create

_BLOCK = 0.3  # seconds of a block of steps
_BATCHES = 20
_LAYOUT = ("NHWC", "HWIO", "NHWC")
_USERS = ("attention", "models", "tasks")  # packages with names of fast forms


def _scan(step, matrices, shared, carry, inputs):
    return jax.lax.scan(lambda c, x: step(matrices, shared, c, x), carry, inputs)


def _tape_scan(step, matrices, shared, slots, valid, carry, inputs, *, empty=False):
    """A scan that carries the tape, the oldest entry first, and moves all entries."""
    size = jax.tree.leaves(slots)[0].shape[1]

    def body(state, x):
        slots, carry, t = state
        inside = jax.lax.dynamic_slice_in_dim(valid, t, size, 1)
        carry, entry, y, s = step(matrices, shared, slots, inside, carry, x)
        slots = jax.tree.map(
            lambda old, new: jnp.concatenate([old[:, 1:], new[:, None]], 1),
            slots,
            entry,
        )
        return (slots, carry, t + 1), (entry, y, s)

    (_, carry, _), (entries, y, s) = jax.lax.scan(body, (slots, carry, 0), inputs)
    return entries, carry, y, s


def _slots(state: jax.Array) -> jax.Array:
    return jnp.swapaxes(state, -1, -2)


def _address(state, previous, **options):
    return attention.memory.address(_slots(state), previous, **options)


def _read(weights, state):
    return attention.memory.read(weights, _slots(state))


def _write(state, weights, erase, add):
    return _slots(attention.memory.write(_slots(state), weights, erase, add))


def _pooled(encode, inputs, w, b, *, mask=None):
    return feedforward_attention(encode(inputs), w, b, mask=mask)


def _weighted_bag(ids, table, words, units):
    return ((words @ units) * table[ids]).sum(-2)


def _halve(x, kernel):
    return jax.lax.conv_general_dilated(
        x, kernel, (2, 2), [(1, 1), (1, 1)], dimension_numbers=_LAYOUT
    )


def _double(x, kernel):
    return jax.lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=_LAYOUT)


def _dropout(x, rate, rng):
    is_kept = jax.random.bernoulli(rng, 1 - rate, x.shape)
    return jnp.where(is_kept, x / (1 - rate), 0)


_RECURRENT = (
    "bahdanau_nmt luong_nmt las_digits captioning ntm_copy pointer_sorting".split()
)
# By name: plain forms by fast form, and the configs, with their overrides.
FORMS: dict[str, tuple[Mapping[Callable, Callable], Sequence[str]]] = {
    "relative": (
        {
            relative.relative_scores: attention.relative.relative_scores,
            relative.relative_values: attention.relative.relative_values,
        },
        ("transformer_nmt", "transformer_nmt data.max_shapes=1"),
    ),
    "dropout": ({dropout.dropout: _dropout}, ("transformer_nmt", "bahdanau_nmt")),
    "linear": ({linear.linear: jnp.matmul}, ("transformer_nmt", "pointer_sorting")),
    "scan": ({deferred.scan: _scan}, _RECURRENT),
    "tape": ({tape.tape_scan: _tape_scan}, ("lstmn_language", "lstmn_text")),
    "memory": (
        {memory.address: _address, memory.read: _read, memory.write: _write},
        ("ntm_copy", "ntm_sort"),
    ),
    "pooled_attention": (
        {pooled_attention.pooled_attention: _pooled},
        ("ff_attention", "ff_attention data.length=10000"),
    ),
    "bags": ({bags.weighted_bag: _weighted_bag}, ("memory_network_qa",)),
    "convolution": (
        {convolution.halve: _halve, convolution.double: _double},
        ("sagan",),
    ),
    "parts": (
        {convolution.conv_general_dilated: jax.lax.conv_general_dilated},
        ("snail_fewshot",),
    ),
}


def main(arguments: Sequence[str]) -> None:
    """Measures the forms and writes the record."""
    runtime.tune_memory(True)
    parser = harness.parser(__doc__, "fast_forms", rounds=11)
    args = parser.parse_args(arguments)
    harness.use_cores()
    systems = {}
    for name in args.only or FORMS:
        plain, configs = FORMS[name]
        for config in configs:
            systems[f"{name}: {config}"] = measure(config.split(), plain, args.rounds)
            print(f"{name}: {config}: {systems[f'{name}: {config}']}", flush=True)
    harness.report("fast_forms", args, systems)


def measure(
    config: Sequence[str], plain: Mapping[Callable, Callable], rounds: int
) -> dict[str, float]:
    """Returns the milliseconds of a step, and how many times those the plain one takes.

    `config` is the name of a config, then overrides; `plain` has the plain forms by
    fast form.
    """
    name, *overrides = config
    fields = configuration.read(f"configs/{name}.py", [*overrides, "parallel=jit"])
    with tempfile.TemporaryDirectory(prefix="fast-forms-") as folder:
        workdir = Path(folder)
        configuration.prepare(fields, workdir)
        configuration.record(fields, workdir)
        task = create(fields, workdir, training=True)
        source = task.train_data()
        by_shape = collections.defaultdict(list)
        for batch in (source[i] for i in range(_BATCHES)):
            by_shape[str(jax.tree.map(jnp.shape, batch))].append(batch)
        batch, *_ = max(by_shape.values(), key=len)
        batch = jax.tree.map(jnp.asarray, batch)
        steps = [_steps(task, {}, batch), _steps(task, plain, batch)]
        for step in steps:
            next(step)  # compiles
    length = max(1, int(_BLOCK / max(_seconds(step, 2) for step in steps)))
    times = [[_seconds(step, length) for step in steps] for _ in range(rounds)]
    return {
        "median_ms": round(1000 * statistics.median(x for x, _ in times), 2),
        "factor": round(statistics.median(y / x for x, y in times), 2),
    }


def _steps(task: Task, plain: Mapping[Callable, Callable], batch: Any) -> Iterator[Any]:
    """Yields the metrics of one step after another, with the plain forms."""
    rng = jax.random.key(0)
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in _USERS:
                for key, value in list(vars(module).items()):
                    if callable(value) and value in plain:
                        patch = mock.patch.object(module, key, plain[value])
                        stack.enter_context(patch)
        jax.clear_caches()
        state = jax.jit(task.objective.init)(rng)
        step = jax.jit(lambda *x: task.objective.step(*x), donate_argnums=0)
        step = step.lower(state, batch, rng).compile()
    while True:
        state, metrics = step(state, batch, rng)
        yield metrics


def _seconds(steps: Iterator[Any], count: int) -> float:
    """The mean time of the next steps."""
    begin = time.perf_counter()
    for _ in range(count):
        metrics = next(steps)
    jax.block_until_ready(metrics)
    return (time.perf_counter() - begin) / count
