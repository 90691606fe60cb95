"""Layouts of a training step over devices: `jit` with a mesh, or `shard_map`.

*   "jit": the batch is sharded over the mesh axes "data" and "fsdp", and every leaf of
    the state (parameters and optimizer moments) over "fsdp" and "tensor", see
    `training.sharding`. XLA inserts the communication.
*   "pmap": each device has the whole state and a part of the batch, and runs the step
    under `shard_map`; `psum` sums over devices.
*   "cores": on a CPU, "pmap" with each core as a device (see `runtime.start`), since
    many small operations do not keep several cores busy; elsewhere, "jit".

The state has the same shapes in every layout, so checkpoints are interchangeable.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from base.devices import data_axis
from base.errors import UserError
from training import sharding
from training.sharding import AXES, DATA, FSDP, TENSOR


def psum(tree: Any) -> Any:
    """Sums each leaf over the devices that `data_axis` maps a step over.

    All leaves are summed as one vector, because two sums in flight can deadlock on a
    CPU: each can occupy a core that the other waits for.

    Args:
        tree: a pytree of arrays; returned unchanged if no map binds the axis.
    """
    axis = data_axis()
    if axis is None:
        return tree
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, axis))


def make_mesh(config: ConfigDict) -> Mesh:
    """Returns the mesh of `config.mesh`: `data` x `fsdp` x `tensor` devices.

    One of the numbers may be -1, for the rest of the devices.

    Raises:
        UserError: if the product is not the number of devices.
    """
    devices, sizes = jax.device_count(), [config[name] for name in AXES]
    if sizes.count(-1) == 1:
        others = -math.prod(sizes)
        sizes[sizes.index(-1)] = devices // others if others > 0 else 0
    if min(sizes) < 1 or math.prod(sizes) != devices:
        fields = ", ".join(f"{name}={config[name]}" for name in AXES)
        raise UserError(
            f"config.mesh is {fields}: the product must be {devices}, the number of "
            "devices (-1 for the rest)"
        )
    return jax.make_mesh(sizes, AXES, axis_types=(AxisType.Auto,) * len(AXES))


class Layout:
    """Placement of state and batches on devices; compilation of the step.

    Attributes:
        mesh: the mesh.
        pmap: whether each device runs the step on its rows.
        blocks: whether each step must end before the next one starts. XLA has one
            thread per CPU device: if the next step started early, its sum could block
            a thread that this step needs, a deadlock.
        batch_sharding: sharding of the arrays of a batch.
    """

    def __init__(self, mesh: ConfigDict, parallel: str):
        """Creates the layout.

        Args:
            mesh: `config.mesh`.
            parallel: `config.parallel`: "jit", "pmap" or "cores".

        Raises:
            UserError: for a mesh that does not fit `parallel` or the devices.
        """
        self.mesh = make_mesh(mesh)
        self._cores = parallel == "cores" and jax.default_backend() == "cpu"
        self.pmap = parallel == "pmap" or (self._cores and self.mesh.size > 1)
        self.blocks = self.pmap and self._cores
        for name in (FSDP, TENSOR):
            if self.pmap and self.mesh.shape[name] > 1:
                raise UserError(
                    f"config.parallel={parallel} needs config.mesh.{name}=1"
                )
        self._replicated = NamedSharding(self.mesh, PartitionSpec())
        self.batch_sharding = NamedSharding(self.mesh, PartitionSpec((DATA, FSDP)))
        # Pieces of the rows, and those of this process's devices. The devices along
        # "tensor", the last axis of the mesh, have the same rows.
        shared = self.mesh.shape[TENSOR]
        self._count = self.mesh.size // shared
        pieces = {
            number // shared
            for number, device in enumerate(self.mesh.devices.flat)
            if device.process_index == jax.process_index()
        }
        self._pieces = sorted(pieces)
        self._rules: sharding.Rules = ()

    def abstract(
        self,
        init: Callable[[jax.Array], Any],
        rng: jax.Array,
        rules: sharding.Rules = (),
    ) -> Any:
        """Returns shapes, dtypes and shardings of `init(rng)` without computing it.

        Args:
            init: `init` of an objective.
            rng: a PRNG key.
            rules: rules of the model, see `training.sharding`.
        """
        self._rules = rules

        def leaf(path, x):
            name, mesh = sharding.path_text(path), self.mesh
            spec = sharding.partition(name, x.shape, rules, mesh.shape)
            placed = NamedSharding(mesh, spec) if any(spec) else self._replicated
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed)

        return jax.tree_util.tree_map_with_path(leaf, jax.eval_shape(init, rng))

    def init(self, init: Callable[[jax.Array], Any], rng: jax.Array, like: Any) -> Any:
        """Returns `init(rng)` with the shardings of `like`, from `abstract`."""
        return jax.jit(init, out_shardings=shardings(like))(rng)

    def global_batch(self, source: Any, index: int) -> Any:
        """Returns a batch on the devices; this process builds only its devices' rows.

        The whole batch does not depend on the numbers of devices and processes.

        Args:
            source: the batches, a `training.task.Source`.
            index: number of the batch.

        Raises:
            UserError: if data x fsdp does not divide the batch.
        """
        if jax.process_count() == 1:
            return self.shard_batch(source[index])
        part = source.part(index, self._pieces, self._count)
        rows = self.batch_sharding
        return jax.tree.map(
            lambda x: jax.make_array_from_process_local_data(rows, x), part
        )

    def shard_batch(self, batch: Any) -> Any:
        """Moves a batch to the devices, which are all of this process.

        Args:
            batch: pytree of arrays with the batch on the first axis.

        Raises:
            UserError: if data x fsdp does not divide the batch.
        """
        devices = self._count
        for leaf in jax.tree.leaves(batch):
            if len(leaf) % devices:
                fewer = "config.parallel=jit" if self._cores else "fewer devices"
                raise UserError(
                    f"the batch size is {len(leaf)}: must be a multiple of the "
                    f"{devices} devices; take {fewer}, or start a new run with another "
                    "config.data.batch_size (config.data.batch_size_multiple for a "
                    "translator)"
                )
        return jax.device_put(batch, self.batch_sharding)

    def jitted(self, step: Callable[..., Any], like: Any) -> Any:
        """Returns `step(state, batch, rng) -> (state, metrics)`, jitted for the mesh.

        The buffers of the state are donated. `rng` is the same in all steps: the step
        number is folded in and, under `pmap`, the device index.

        Args:
            step: `step` of an objective.
            like: shapes and shardings of the state, from `abstract`.
        """

        def whole_step(state, batch, rng):
            if self.pmap:
                rng = jax.random.fold_in(rng, jax.lax.axis_index(DATA))
            with sharding.use_mesh(self.mesh, self._rules):
                return step(state, batch, jax.random.fold_in(rng, state.step))

        if not self.pmap:
            placed = shardings(like), self._replicated
            return jax.jit(whole_step, donate_argnums=0, out_shardings=placed)
        replicated, rows = PartitionSpec(), PartitionSpec(DATA)
        shards = jax.shard_map(
            whole_step,
            mesh=self.mesh,
            in_specs=(replicated, rows, replicated),
            out_specs=replicated,
            check_vma=False,
        )
        return jax.jit(shards, donate_argnums=0)


def shardings(like: Any) -> Any:
    """Returns the shardings of a state's shapes, from `Layout.abstract`."""
    return jax.tree.map(lambda x: x.sharding, like)
