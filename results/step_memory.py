"""Memory of a compiled training step, for the tables that compare it."""

from pathlib import Path

import jax
from ml_collections import ConfigDict

from training import checks, configuration, parallel

FIELD = "step_mb"  # of a record
_BATCHES = 20  # of which the largest is compiled


def megabytes(workdir: Path) -> float:
    """Returns the memory of a training step of a run on one device, in 10^6 bytes.

    This includes the parameters, optimizer state, batch, results, and temporary arrays
    such as activations, for the largest of the first batches.

    Args:
        workdir: the run directory.
    """
    config = configuration.load(workdir)
    assets = config.task.prepare(config, workdir, training=True)
    task = config.task(config, assets)
    batches = task.train_data()
    batch = max((batches[i] for i in range(_BATCHES)), key=_bytes)
    layout = parallel.Layout(ConfigDict({"data": 1, "fsdp": 1, "tensor": 1}), "jit")
    rng = jax.random.key(0)
    like = layout.abstract(task.objective.init, rng)
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
    step = layout.jitted(task.objective.step, like).lower(like, batch, rng).compile()
    return round((checks.step_bytes(step) or 0) / 1e6, 1)


def _bytes(batch: dict) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(batch))
