"""Sharding of parameters over a mesh, by rules on their paths.

The mesh has three axes:

*   "data": each device has a part of the batch, and all parameters.
*   "fsdp": each device has a part of the batch and a part of every parameter, which is
    collected where it is used (Rajbhandari et al. 2020, ZeRO stage 3).
*   "tensor": each device has a part of every matrix product and the same rows of the
    batch (Shoeybi et al. 2019, section 3).

A model declares `sharding`, a table of rules: the first pattern that matches the end of
a parameter's path gives the mesh axis of each of its axes. Then "fsdp" takes the
longest axis that remains and whose length is a multiple of the mesh's. Optimizer
moments and averages have the paths of their parameters, and are cut like them.
"""

import contextlib
import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from base.devices import DATA
from training import checks

FSDP, TENSOR = "fsdp", "tensor"
AXES = (DATA, FSDP, TENSOR)

# (pattern of paths, mesh axis of each axis of the parameter). A "*" in a pattern
# matches any text; axes of the parameter beyond those of the rule are not cut.
Rules = Sequence[tuple[str, tuple[str | None, ...]]]


def rules_of(config: ConfigDict) -> Rules:
    """Returns the rules of the models of a config."""
    models = (config[name] for name in checks.models(config))
    return [rule for model in models for rule in getattr(model, "sharding", ())]


def path_text(path: Any) -> str:
    """Returns the path of a leaf, such as "encoder_0/self_attention/query"."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def partition(
    path: str, shape: tuple[int, ...], rules: Rules, mesh: Mapping[str, int]
) -> PartitionSpec:
    """Returns the mesh axis of each axis of an array.

    A rule applies only if each mesh axis divides the length of its array axis.

    Args:
        path: path of the parameter, or one that ends in it, such as
            "opt_state/0/mu/embedding".
        shape: its shape.
        rules: rules of the model.
        mesh: number of devices of each axis of the mesh.
    """
    axes: list[str | None] = [None] * len(shape)
    for pattern, spec in rules:
        # Factored moments of an optimizer have fewer axes than their parameter.
        if len(spec) <= len(shape) and fnmatch.fnmatchcase(f"/{path}", f"*/{pattern}"):
            lengths = zip(spec, shape, strict=False)
            if not any(name and n % mesh[name] for name, n in lengths):
                axes[: len(spec)] = [n if n and mesh[n] > 1 else None for n in spec]
            break
    parts = mesh[FSDP]
    free = [
        n if axis is None and n % parts == 0 else 0
        for n, axis in zip(shape, axes, strict=True)
    ]
    if parts > 1 and any(free) and FSDP not in axes:
        axes[int(np.argmax(free))] = FSDP
    while axes and axes[-1] is None:
        axes.pop()
    return PartitionSpec(*axes)


_current: ContextVar[tuple[Mesh, Rules] | None] = ContextVar("mesh", default=None)


@contextlib.contextmanager
def use_mesh(mesh: Mesh, rules: Rules) -> Iterator[None]:
    """Sets the mesh and the rules of `all_gather`, while a step is traced."""
    token = _current.set((mesh, rules))
    try:
        yield
    finally:
        _current.reset(token)


def all_gather(params: Any) -> Any:
    """Returns parameters without their sharding over "fsdp".

    A loss calls it on its parameters, so that a step collects each of them once. Their
    gradients are sharded again. Without it, XLA may collect a parameter in each step of
    a scan, or exchange activations instead.

    Args:
        params: parameters, or those of one model.
    """
    if (current := _current.get()) is None or current[0].shape[FSDP] == 1:
        return params
    mesh, rules = current

    def leaf(path, x):
        spec = partition(path_text(path), x.shape, rules, mesh.shape)
        if FSDP not in spec:
            return x
        whole = PartitionSpec(*(None if name == FSDP else name for name in spec))
        return _gathered(x, NamedSharding(mesh, whole), NamedSharding(mesh, spec))

    return jax.tree_util.tree_map_with_path(leaf, params)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _gathered(x: jax.Array, whole: NamedSharding, parts: NamedSharding) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, whole)


_gathered.defvjp(
    lambda x, whole, parts: (_gathered(x, whole, parts), None),
    # Summed over the rows first, so that rows need not be exchanged for columns.
    lambda whole, parts, _, gradient: (
        jax.lax.with_sharding_constraint(
            jax.lax.with_sharding_constraint(gradient, whole), parts
        ),
    ),
)
