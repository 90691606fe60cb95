"""Table of a sharded training step: arrays, memory and communication of a device."""

import collections
import math
import re
from collections.abc import Mapping
from typing import Any

import jax

from training import sharding
from training.checks import bytes_text
from training.sharding import Rules

_COLLECTIVES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
# Of an asynchronous operation, the end: the start has the operands among its results.
_LINE = re.compile(rf" = (.+?) ({_COLLECTIVES})(?:-done)?\(")
_ARRAY = re.compile(r"\b(?:pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")  # bf16[3,5]


def describe(like: Any, rules: Rules, mesh: Mapping[str, int]) -> list[str]:
    """Returns the table, or a line if all devices have the whole state."""
    count = mesh[sharding.DATA]
    if count < math.prod(mesh.values()):
        return table(like, rules, mesh)
    size = sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(like))
    return [
        f"{count} devices, each with all parameters and moments ({bytes_text(size)}) "
        f"and 1/{count} of the batch"
    ]


def table(like: Any, rules: Rules, mesh: Mapping[str, int]) -> list[str]:
    """Returns a line for each kind of sharding of the state, with a heading.

    Args:
        like: shapes and dtypes of the state.
        rules: rules of the model.
        mesh: number of devices of each axis of the mesh.
    """
    sizes_by_axes: dict[str, list[int]] = collections.defaultdict(list)
    for path, x in jax.tree_util.tree_leaves_with_path(like):
        spec = sharding.partition(sharding.path_text(path), x.shape, rules, mesh)
        pieces = math.prod(mesh[name] for name in spec if name)
        axes = ", ".join(name or "-" for name in spec) or "replicated"
        sizes_by_axes[axes].append(math.prod(x.shape) * x.dtype.itemsize // pieces)
    groups = [*sorted(sizes_by_axes.items())]
    groups += [("all", [size for _, group in groups for size in group])]
    rows = [("sharded over", "arrays", "per device")]
    rows += [(axes, f"{len(x):,}", bytes_text(sum(x))) for axes, x in groups]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows
    ]
    sizes = ", ".join(f"{name} {n}" for name, n in mesh.items())
    return [f"mesh: {sizes}", *lines]


def collectives(program: str) -> dict[str, tuple[int, int]]:
    """Returns number and bytes of the collective operations of a compiled program.

    The bytes are those of the results on a device. An operation in a loop counts once.

    Args:
        program: text of the program, in XLA's HLO.
    """
    counts: dict[str, tuple[int, int]] = {}
    for shapes, kind in _LINE.findall(program):
        size = sum(
            int(bits or 8) * math.prod(int(n) for n in axes.split(",") if n) // 8
            for bits, axes in _ARRAY.findall(shapes)
        )
        number, total = counts.get(kind, (0, 0))
        counts[kind] = number + 1, total + size
    return counts


def communication(program: str) -> str:
    """Returns a line on the collective operations of a compiled step."""
    parts = [
        f"{number} {kind} ({bytes_text(size)})"
        for kind, (number, size) in sorted(collectives(program).items())
    ]
    return f"a step communicates: {', '.join(parts) or 'nothing'}"
