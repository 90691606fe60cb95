r"""Trains the task of a config, or goes on where the run in --workdir stopped.

    python train.py --config=configs/transformer_nmt.py --workdir=runs/transformer_nmt

A config may have variants, and every field of it can be set here:

    python train.py --config=configs/transformer_nmt.py:big --workdir=runs/big \
        --config.model.d_model=512 --config.optimizer.warmup=2000
"""

from pathlib import Path

from absl import flags

from errors import UserError
from training import runtime

_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "The config file, as configs/NAME.py or configs/NAME.py:VARIANT; "
    "--config.FIELD=VALUE sets a field of it.",
)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "The run directory: config, metrics, checkpoints and figures. A run that is there "
    "goes on from its last checkpoint.",
)
_TUNE_MEMORY = flags.DEFINE_bool(
    "tune_memory",
    True,
    "On a CPU under Linux: start again with a malloc that keeps large buffers, which "
    "makes steps faster.",
)


def main(arguments: runtime.Arguments) -> int:
    """Trains."""
    if not _WORKDIR.value:
        raise UserError(
            "--workdir is missing: name a folder, as in --workdir=runs/NAME"
        )
    runtime.tune_memory(_TUNE_MEMORY.value)
    from training import configuration, loop  # slow to import: not for --help

    config = configuration.read(_CONFIG.value, arguments.overrides)
    runtime.start(cores=config.parallel == "cores")
    return loop.train(config, Path(_WORKDIR.value))


if __name__ == "__main__":
    runtime.run(main, overrides=True)
