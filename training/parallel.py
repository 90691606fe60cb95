"""One step on one device or many: `jit` over a mesh, or `pmap`.

Under `jit` the batch is cut over the axes "data" and "fsdp" of a mesh, and every leaf
of the state (parameters and optimizer moments alike) over "fsdp" where one of its axes
divides; XLA adds the communication. Under `pmap` each device holds the whole state and
its own rows, and sums cross devices in `total`. Either way the state has the same
shapes, so a checkpoint does not know how it was trained.

"cores" is for steps of many small operations, which leave the cores of a CPU idle that
share each of them, and keep those busy that share the rows. There `runtime.start` makes
a device of each core, and each has its rows as under `pmap`; elsewhere it is `jit`.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from errors import UserError

_DATA, _FSDP = "data", "fsdp"


def total(tree: Any, axis_name: str | None) -> Any:
    """Sums each leaf over the devices.

    All leaves cross in one vector: of two sums at a time, each can hold a core of a CPU
    that the other one waits for.

    Args:
        tree: of arrays.
        axis_name: of `pmap`; None under `jit`, where an array is already the whole
            batch's and nothing changes.
    """
    if axis_name is None:
        return tree
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, axis_name))


def make_mesh(config: ConfigDict) -> Mesh:
    """Returns the mesh of `config.mesh`: `data` x `fsdp` devices, -1 for the rest.

    Raises:
        UserError: if the devices cannot be arranged so.
    """
    devices, data, fsdp = jax.device_count(), config.data, config.fsdp
    if data == -1 and fsdp > 0:
        data = devices // fsdp
    elif fsdp == -1 and data > 0:
        fsdp = devices // data
    if data < 1 or fsdp < 1 or data * fsdp != devices:
        raise UserError(
            f"config.mesh: data={config.data} times fsdp={config.fsdp} does not make "
            f"the {devices} devices there are (-1 takes the rest)"
        )
    return jax.make_mesh((data, fsdp), (_DATA, _FSDP), axis_types=(AxisType.Auto,) * 2)


class Layout:
    """Placement of state and batches on devices, and compilation of the step."""

    def __init__(self, mesh: ConfigDict, parallel: str):
        """Takes `config.mesh` and `config.parallel`.

        Raises:
            UserError: for devices that cannot be arranged so, or an unknown `parallel`.
        """
        self.mesh = make_mesh(mesh)
        self._cores = parallel == "cores" and jax.default_backend() == "cpu"
        self.pmap = parallel == "pmap" or (self._cores and self.mesh.size > 1)
        if parallel not in ("jit", "pmap", "cores"):
            raise UserError(
                f"config.parallel={parallel} is unknown: take jit, pmap or cores"
            )
        if self.pmap and self.mesh.shape[_FSDP] > 1:
            raise UserError(f"config.parallel={parallel} needs config.mesh.fsdp=1")
        if self.pmap and jax.process_count() > 1:
            raise UserError(f"config.parallel={parallel} runs on one host: take jit")
        # `pmap` has a mesh of its own, and compiles again for a state of another one.
        devices = Mesh(self.mesh.devices.ravel(), _DATA) if self.pmap else self.mesh
        self._replicated = NamedSharding(devices, PartitionSpec())
        self._rows = NamedSharding(self.mesh, PartitionSpec((_DATA, _FSDP)))

    @property
    def axis_name(self) -> str | None:
        """The axis of devices that a step sums over; None under `jit`."""
        return _DATA if self.pmap else None

    def abstract(self, init: Callable[[jax.Array], Any], rng: jax.Array) -> Any:
        """Returns the shapes of `init(rng)` with their places, without computing it."""
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=self._place(x.shape)
            ),
            jax.eval_shape(init, rng),
        )

    def init(self, init: Callable[[jax.Array], Any], rng: jax.Array, like: Any) -> Any:
        """Returns `init(rng)`, each leaf made where `like` (see `abstract`) has it."""
        return jax.jit(init, out_shardings=_shardings(like))(rng)

    def place(self, state: Any, like: Any) -> Any:
        """Moves a state to where `like` (see `abstract`) has it."""
        return jax.device_put(state, _shardings(like))

    def put(self, batch: Any) -> Any:
        """Moves a host's batch (a pytree with rows first) to the devices.

        Every host has the whole batch and sends the rows of its own devices.

        Raises:
            UserError: if the rows do not divide over the devices.
        """
        devices = self.mesh.size
        for leaf in jax.tree.leaves(batch):
            if len(leaf) % devices:
                fewer = "config.parallel=jit" if self._cores else "fewer devices"
                raise UserError(
                    f"a batch of {len(leaf)} rows does not divide over {devices} "
                    "devices: make config.data.batch_size (config.data."
                    "batch_size_multiple for a translator) a multiple of them, or "
                    f"take {fewer}"
                )
        if self.pmap:
            batch = jax.tree.map(lambda x: x.reshape(devices, -1, *x.shape[1:]), batch)
        if jax.process_count() > 1:
            return jax.tree.map(
                lambda x: jax.make_array_from_callback(
                    x.shape, self._rows, lambda index: x[index]
                ),
                batch,
            )
        return jax.device_put(batch, self._rows)

    def compile(self, step: Callable[..., Any], like: Any) -> Callable[..., Any]:
        """Returns `step(state, batch, rng) -> (state, metrics)` for these devices.

        The state's memory is reused. `rng` is the run's own: each step folds its number
        in, and under `pmap` the device's, too.

        Args:
            step: an objective's `step`.
            like: the state's shapes and places, from `abstract`.
        """

        def one(state, batch, rng):
            return step(state, batch, jax.random.fold_in(rng, state.step))

        def each(state, batch, rng):
            return one(state, batch, jax.random.fold_in(rng, jax.lax.axis_index(_DATA)))

        if self.pmap:
            mapped = jax.pmap(
                each,
                _DATA,
                in_axes=(None, 0, None),
                out_axes=None,
                donate_argnums=0,
                devices=list(self.mesh.devices.flat),
            )
            if not self._cores:
                return mapped
            # XLA runs the devices of a CPU on as many threads, and a sum of the next
            # step that waits on one of them is one too many.
            return lambda *args: jax.block_until_ready(mapped(*args))
        return jax.jit(
            one,
            donate_argnums=0,
            out_shardings=(_shardings(like), self._replicated),
        )

    def _place(self, shape: tuple[int, ...]) -> NamedSharding:
        """Cuts the largest axis that divides over "fsdp"; none fits: replicates."""
        parts = self.mesh.shape[_FSDP]
        sizes = [n if n % parts == 0 else 0 for n in shape]
        if parts == 1 or not any(sizes):
            return self._replicated
        spec: list[str | None] = [None] * len(shape)
        spec[int(np.argmax(sizes))] = _FSDP
        return NamedSharding(self.mesh, PartitionSpec(*spec))


def _shardings(like: Any) -> Any:
    return jax.tree.map(lambda x: x.sharding, like)
