"""The axis of devices over which a training step may be mapped."""

import jax

DATA = "data"


def data_axis() -> str | None:
    """Returns "data" in a step that each device runs on its rows of a batch, else None.

    `config.parallel=pmap` maps a step over this axis. Under "jit", arrays span all
    rows.
    """
    try:
        jax.lax.axis_size(DATA)
    except NameError:  # no map binds it
        return None
    return DATA
