"""The process around a run: errors, flags, memory, compilation cache, environment.

Nothing here imports jax before it must: `--help` and a mistyped flag answer at once,
and `tune_memory` starts Python again before anything slow is imported.
"""

import glob
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from absl import app, flags, logging

import storage
from errors import UserError

_MOST_DEVICES = 8  # that a CPU is cut into
_FORCED = "xla_force_host_platform_device_count"
# Some convolutions, and most of their gradients to a kernel, take two to four times as
# long on a CPU by XLA's newer library as by its older one.
_NO_YNN = "--xla_cpu_experimental_ynn_fusion_type=-individual_convolution"
# To these jaxlibs; an unknown flag ends the process.
_KNOWN = ("0.10.", "0.11.", "0.12.")
_HELP = ("--help", "-help", "-h", "-?", "--h")
_MALLOC = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**28),
}


class Arguments(NamedTuple):
    """Flags of a command line that are not absl's.

    Attributes:
        overrides: of the config, as ["FIELD=VALUE", ...].
        options: texts of the task's options, by name.
    """

    overrides: list[str]
    options: dict[str, str]


def run(
    main: Callable[[Arguments], int | None],
    *,
    overrides: bool = False,
    options: str | None = None,
) -> None:
    """Runs an entry point: a user's mistake gets one line and exit status 1.

    Flags are parsed first.

    Args:
        main: called with what absl's flags leave over.
        overrides: take `--config.FIELD=VALUE` for an override of the config.
        options: take other flags for options of the task: the attribute of its class
            that declares them.
    """

    def parse(argv: list[str]) -> Arguments:
        try:
            if any(arg in _HELP for arg in argv[1:]):
                print(_help(argv, options))
                sys.exit(0)
            rest, fields = _split(argv) if overrides else (argv, [])
            rest = flags.FLAGS(rest, known_only=options is not None)[1:]
            given = _options(rest) if options else {}
            if rest and not options:
                raise UserError(f"{rest[0]} is no flag: see --help")
        except (flags.Error, UserError) as error:
            sys.exit(_fail(error))
        if flags.FLAGS["verbosity"].using_default_value:
            logging.set_verbosity(logging.WARNING)  # orbax logs every move at INFO
        return Arguments(fields, given)

    def guarded(arguments: Arguments) -> int | None:
        # Libraries turn a KeyboardInterrupt into tracebacks of their own. A shell has
        # the signal ignored in what it runs in the background, and so it stays.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupted)
        try:
            status = main(arguments)
            sys.stdout.flush()
            return status
        except UserError as error:
            return _fail(error)
        except MemoryError as error:
            return _fail(f"out of memory, ask for less at a time: {error}")
        except BrokenPipeError:  # whoever read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE

    app.run(guarded, flags_parser=parse)


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parts the command line into absl's own and a config's overrides."""
    rest, overrides, args = [], [], list(argv)
    while args:
        arg = args.pop(0)
        name = arg.lstrip("-")
        if not arg.startswith("-") or not name.startswith("config."):
            rest.append(arg)
            continue
        if "=" not in name:
            if not args or args[0].startswith("--"):
                raise UserError(f"{arg} needs a value: {arg}=VALUE")
            name += f"={args.pop(0)}"
        overrides.append(name.removeprefix("config."))
    return rest, overrides


def _options(rest: Sequence[str]) -> dict[str, str]:
    """Returns the texts of options such as ["--beam=4", "--alpha", "0.6"], by name."""
    options, rest = {}, list(rest)
    while rest:
        arg = rest.pop(0)
        if not arg.startswith("-") or not arg.strip("-"):
            raise UserError(f"{arg} is no flag: see --help")
        name, equals, value = arg.lstrip("-").partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        options[name] = value
    return options


def _help(argv: Sequence[str], options: str | None) -> str:
    """Returns the help of an entry point; of a run's task as well, with --workdir."""
    parts = [sys.modules["__main__"].__doc__ or "", flags.FLAGS.main_module_help()]
    if options:
        text = "  add --workdir=RUN to list those of its task"
        if workdir := _value_of("--workdir", argv):
            from options import describe
            from training import configuration

            task = configuration.load(Path(workdir)).task
            text = describe(getattr(task, options))
        parts.append(f"options of the task:\n{text}")
    return "\n".join(parts)


def _value_of(flag: str, argv: Sequence[str]) -> str | None:
    for arg, following in itertools.zip_longest(argv, argv[1:]):
        name, equals, value = arg.partition("=")
        if name == flag:
            return value if equals else following
    return None


def _interrupted(*_: Any) -> None:
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(128 + signal.SIGINT)


def _fail(error: Exception | str) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 1


class StopSignal:
    """Notes SIGTERM and SIGINT, so that a loop can end at a step of its own.

    A second signal acts at once. The number of the signal is in `received`.
    """

    def __init__(self):
        """Waits for nothing yet."""
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        """Starts to listen (in a main thread; elsewhere there is nothing to hear)."""
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:
            pass
        return self

    def __exit__(self, *_: Any) -> None:
        """Gives the signals back."""
        while self._before:
            signal.signal(*self._before.popitem())

    def _note(self, number: int, _frame: Any) -> None:
        self.received = number
        self.__exit__()


def tune_memory(wanted: bool) -> None:
    """Starts Python again with a malloc that keeps large buffers.

    XLA's CPU backend asks for large fresh buffers at each step; the page faults cost up
    to a fifth of its time. Only on Linux with glibc and without an accelerator; what
    the environment sets already is left as it is.
    """
    missing = {k: v for k, v in _MALLOC.items() if k not in os.environ}
    if not wanted or not missing or not _cpu_only():
        return
    if platform.libc_ver()[0] != "glibc":
        return
    print(
        "memory: starting again with glibc's malloc set to keep large buffers "
        "(--tune_memory=false leaves it)",
        file=sys.stderr,
        flush=True,
    )
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **missing})


def _cpu_only() -> bool:
    platforms = os.environ.get("JAX_PLATFORMS", "")
    devices = ("/dev/nvidia[0-9]*", "/dev/accel*", "/dev/kfd", "/dev/vfio/[0-9]*")
    return platforms == "cpu" or (
        not platforms and not any(glob.glob(pattern) for pattern in devices)
    )


def start(*, cores: bool = False) -> None:
    """Sets jax up: the cache, a CPU's convolutions, and other hosts if there are any.

    A host of several finds the others by `JAX_COORDINATOR_ADDRESS`,
    `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`.

    Args:
        cores: make a device of each core of a CPU (of 2, 4 or 8 of them), unless
            `JAX_NUM_CPU_DEVICES` or `XLA_FLAGS` say how many there are.

    Raises:
        UserError: if the cache folder cannot be made, or the address is given without
            the numbers.
    """
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = storage.cache_folder() / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    told, given = "JAX_NUM_CPU_DEVICES" in os.environ, os.environ.get("XLA_FLAGS", "")
    version, name = metadata.version("jaxlib"), _NO_YNN.partition("=")[0]
    if _cpu_only() and version.startswith(_KNOWN) and name not in given:
        os.environ["XLA_FLAGS"] = f"{given} {_NO_YNN}".strip()
    if cores and not told and _FORCED not in given:
        devices = 1 << (min(_cpus(), _MOST_DEVICES).bit_length() - 1)
        jax.config.update("jax_num_cpu_devices", devices)
    if address := os.environ.get("JAX_COORDINATOR_ADDRESS"):
        names = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
        try:
            number, index = (int(os.environ[name]) for name in names)
        except (KeyError, ValueError) as error:
            raise UserError(
                f"JAX_COORDINATOR_ADDRESS is set, so {' and '.join(names)} must be "
                "whole numbers"
            ) from error
        jax.distributed.initialize(address, number, index, heartbeat_timeout_seconds=10)


def environment() -> dict[str, Any]:
    """Returns versions, devices and the commit, as a run records them."""
    import jax

    names = (
        "jax jaxlib flax optax orbax-checkpoint ml_collections numpy sentencepiece "
        "sacrebleu"
    )
    versions = {"python": platform.python_version()}
    for name in names.split():
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "versions": versions,
        "platform": platform.platform(),
        "cpus": _cpus(),
        "devices": [device.device_kind for device in jax.devices()],
        "backend": jax.default_backend(),
        "commit": commit(),
    }


def _cpus() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def commit() -> str:
    """Returns the commit of this code, with "+changes" where it is not as committed."""
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", "*.py")
    return _git("rev-parse", "HEAD")[:10] + "+changes" * bool(changes)


def record_environment(workdir: Path) -> None:
    """Writes `environment.json` into a run directory."""
    text = json.dumps(environment(), indent=2)
    storage.write(workdir / "environment.json", text + "\n")


def _git(*command: str) -> str:
    folder = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", *command], cwd=folder, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
