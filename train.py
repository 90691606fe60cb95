r"""Trains the task of a config, or resumes the run in --workdir.

    python train.py --config=configs/transformer_nmt.py --workdir=runs/transformer_nmt

A config may have variants, and flags set its fields:

    python train.py --config=configs/transformer_nmt.py:big --workdir=runs/big \
        --config.model.d_model=512 --config.optimizer.warmup=2000
"""

import os
import signal
from pathlib import Path

from absl import flags

from base.errors import UserError
from training import runtime
from training.cluster import hosts
from training.command_line import Arguments

_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "Config file, as configs/NAME.py or configs/NAME.py:VARIANT; "
    "--config.FIELD=VALUE sets a field.",
)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Run directory, for config, metrics, checkpoints and figures. An existing run is "
    "resumed from its last checkpoint.",
)
_TUNE_MEMORY = flags.DEFINE_bool(
    "tune_memory",
    True,
    "On a CPU under Linux: restart with a malloc that keeps large buffers, which makes "
    "steps faster.",
)
_MEMORY_CHECK = flags.DEFINE_bool(
    "memory_check",
    True,
    "Refuse a run whose training step does not fit into the memory of a device.",
)
hosts.define_flags()


def main(arguments: Arguments) -> int:
    """Trains the task of the config; returns the exit status."""
    if not _WORKDIR.value:
        raise UserError(
            "--workdir is missing: name a folder, as in --workdir=runs/NAME"
        )
    # Until the loop notes signals; Python's exit may wait for threads.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    runtime.tune_memory(_TUNE_MEMORY.value)
    from training import configuration, loop  # slow to import: not for --help
    from training.task import Task

    config = configuration.read(_CONFIG.value, arguments.overrides)
    configuration.check(config, Task)
    runtime.start(cores=config.parallel == "cores")
    watchdog, memory_check = flags.FLAGS.watchdog, _MEMORY_CHECK.value
    return loop.train(config, Path(_WORKDIR.value), watchdog, memory_check)


if __name__ == "__main__":
    runtime.run(main, overrides=True)
