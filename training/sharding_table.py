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
    groups: dict[tuple[str, str], list[int]] = collections.defaultdict(lambda: [0, 0])
    for path, x in jax.tree_util.tree_leaves_with_path(like):
        cut = sharding.partition(sharding.path_text(path), x.shape, rules, mesh)
        axes = ", ".join(name or "-" for name in cut.spec) or "replicated"
        if cut.undivided:
            axes += f" ({sharding.TENSOR} does not divide it)"
        group = groups[cut.rule or "(no rule)", axes]
        group[0] += 1
        group[1] += (
            math.prod(x.shape) * x.dtype.itemsize // sharding.divisor(cut.spec, mesh)
        )
    rows = [("parameters and moments", "sharded over", "arrays", "per device")]
    rows += [
        (rule, axes, f"{count:,}", bytes_text(size))
        for (rule, axes), (count, size) in sorted(groups.items())
    ]
    total = sum(size for _, size in groups.values())
    rows.append(
        ("all", "", f"{sum(n for n, _ in groups.values()):,}", bytes_text(total))
    )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}"
        for a, b, c, d in rows
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
