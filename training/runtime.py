"""Process setup: errors, flags, signals, memory, compilation cache, environment.

jax is imported as late as possible: `--help` and errors in flags are immediate, and
`tune_memory` restarts Python before slow imports.
"""

import errno
import glob
import json
import os
import platform
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from base import storage
from base.errors import UserError, is_fault
from base.ranges import Range
from training import command_line
from training.cluster import hosts, job
from training.command_line import Arguments

_MAX_CPU_DEVICES = 8
_CPU_DEVICES = Range(1, 1024, whole=True)  # of JAX_NUM_CPU_DEVICES
_FORCED = "xla_force_host_platform_device_count"
# On a CPU, some convolutions and most of their kernel gradients take two to four times
# as long with XLA's newer library as with its older one.
_NO_YNN = "--xla_cpu_experimental_ynn_fusion_type=-individual_convolution"
# Versions of jaxlib with this flag; an unknown flag ends the process.
_YNN_VERSIONS = ("0.10.", "0.11.", "0.12.")
_HELP = ("--help", "-help", "-h", "-?", "--h")
_MALLOC = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**28),
}
# Names of packages that differ from the names of their modules.
_PACKAGES = {"PIL": "pillow", "absl": "absl-py", "orbax": "orbax-checkpoint"}
_NOT_WRITTEN = (errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EROFS)
_RESTARTED = "ATTENTION_MEMORY_TUNED"  # set for the restarted process
_ROOT = Path(__file__).parents[1]  # of the code
_MAX_CHANGES = 2**20  # bytes of `changes.diff`
# A patch that does not depend on the user's settings of git.
_DIFF = (
    "diff --no-color --no-ext-diff --no-textconv --no-renames --full-index "
    "--unified=3 --src-prefix=a/ --dst-prefix=b/"
).split()


def run(
    main: Callable[[Arguments], int | None],
    *,
    overrides: bool = False,
    options: str | None = None,
) -> None:
    """Runs an entry point; a user's mistake prints one line and exits with status 1.

    A fault exits with `job.FAULT`. Other exceptions print a traceback and exit with
    `job.CRASH`, or with `job.FAULT` if jax's runtime has failed.

    Args:
        main: called with the flags that are not absl's; returns the exit status.
        overrides: accept `--config.FIELD=VALUE` as overrides of the config.
        options: accept other flags as options of the task; names the attribute of the
            task that declares them.
    """

    def parse(argv: list[str]) -> Arguments:
        try:
            # jax would read it at its import.
            hosts.whole("JAX_NUM_CPU_DEVICES", _CPU_DEVICES)
            if any(arg in _HELP for arg in argv[1:]):
                print(command_line.help_text(argv, options))
                sys.exit(0)
            rest, fields = command_line.split(argv) if overrides else (argv, [])
            command_line.check_numbers(rest)
            rest = flags.FLAGS(rest, known_only=options is not None)[1:]
            given = command_line.parse_options(rest) if options else {}
            for name in command_line.flag_names():
                if flags.FLAGS[name].value == "":
                    raise UserError(f"--{name} needs a value: --{name}=VALUE")
            if rest and not options:
                raise UserError(command_line.not_a_flag(rest[0]))
        except flags.Error as error:
            sys.exit(_fail(command_line.flag_error(error, argv if overrides else ())))
        except UserError as error:
            sys.exit(_fail(error))
        if flags.FLAGS["verbosity"].using_default_value:
            logging.set_verbosity(logging.WARNING)  # orbax is verbose at INFO
        return Arguments(fields, given)

    def guarded(arguments: Arguments) -> int | None:
        # Libraries print tracebacks for a KeyboardInterrupt. A signal that is ignored,
        # as in background jobs of a shell, stays ignored.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupted)
        try:
            status = main(arguments)
            sys.stdout.flush()
            return status
        except BrokenPipeError as error:  # the reader of the output has closed it
            _discard_output()
            status = 128 + signal.SIGPIPE
            job.end(error, "its output cannot be written", status)
            return status
        except Exception as error:
            line = _line(error)
            status = job.status_of(error, line)
            job.end(error, line, status)
            if line is None:
                traceback.print_exception(error)
                return status
            return _fail(line, status)

    app.run(guarded, flags_parser=parse)


def _line(error: Exception) -> str | None:
    """Returns the line for an error that a user can mend; None for other errors."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        package = _package(error.name)
        return package and (
            f"{package} is not installed: `pip install {package}` installs it, "
            "`make env` all packages"
        )
    reason = " ".join(str(error).split())
    if "Unable to initialize backend" in reason and "JAX_PLATFORMS" in os.environ:
        return f"JAX_PLATFORMS={os.environ['JAX_PLATFORMS']}: {reason}"
    if isinstance(error, ValueError) and _is_from_jax_config(error):
        return f"the variables JAX_* of the environment: {reason}"
    if isinstance(error, MemoryError):
        return f"out of memory, reduce the sizes: {reason}"
    if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in reason:  # of jax
        return f"out of memory, reduce the sizes: {reason[:200]}"
    if isinstance(error, OSError) and (is_fault(error) or error.errno in _NOT_WRITTEN):
        name = "" if error.filename is None else f"{error.filename}: "
        return f"{name}{error.strerror}"
    return None


def _is_from_jax_config(error: Exception) -> bool:
    """Returns whether jax raised an error as it read the environment at its import."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__") == "jax._src.config"


def write_line(text: str) -> None:
    """Writes a line to standard output.

    Raises:
        UserError: if it cannot be written, for example on a full disk.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_output()
        reason = error.strerror
        raise UserError(f"standard output cannot be written: {reason}") from None


def _discard_output() -> None:
    """Makes standard output ignore its buffer, which Python writes again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _package(module: str | None) -> str | None:
    """Returns the name of the package with a module; None for this project's."""
    name = (module or "").partition(".")[0]
    if not name or (_ROOT / name).is_dir() or (_ROOT / f"{name}.py").exists():
        return None
    return _PACKAGES.get(name, name)


def _interrupted(*_: Any) -> None:
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(128 + signal.SIGINT)


def _fail(error: Exception | str, status: int = 1) -> int:
    print(f"error: {error}", file=sys.stderr)
    return status


def tune_memory(enabled: bool) -> None:
    """Restarts Python with malloc settings that keep large buffers.

    XLA's CPU backend allocates large buffers at each step; their page faults take up to
    a fifth of the time. Only on Linux with glibc and without an accelerator. Variables
    that are already set in the environment are not changed.
    """
    missing = {k: v for k, v in _MALLOC.items() if k not in os.environ}
    if not enabled or not missing or not _cpu_only():
        return
    if platform.libc_ver()[0] != "glibc":
        return
    command = [sys.executable, *sys.orig_argv[1:]]
    environ = {**os.environ, **missing, _RESTARTED: "true"}
    os.execve(sys.executable, command, environ)


def report_memory() -> None:
    """Prints a line if `tune_memory` restarted this process; call it after checks."""
    if os.environ.pop(_RESTARTED, None):
        print(
            "memory: restarted with glibc's malloc set to keep large buffers "
            "(--tune_memory=false turns this off)",
            file=sys.stderr,
            flush=True,
        )


def _cpu_only() -> bool:
    platforms = os.environ.get("JAX_PLATFORMS", "")
    devices = ("/dev/nvidia[0-9]*", "/dev/accel*", "/dev/kfd", "/dev/vfio/[0-9]*")
    return platforms == "cpu" or (
        not platforms and not any(glob.glob(pattern) for pattern in devices)
    )


def start(*, cores: bool = False) -> None:
    """Configures jax: compilation cache, CPU convolutions, a job of several processes.

    Args:
        cores: create 2, 4 or 8 devices on a CPU, at most one per core, unless
            `JAX_NUM_CPU_DEVICES` or `XLA_FLAGS` sets their number.

    Raises:
        UserError: if the cache folder cannot be created, or the job cannot be joined.
    """
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = storage.cache_folder() / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    xla_flags = os.environ.get("XLA_FLAGS", "")
    version, name = metadata.version("jaxlib"), _NO_YNN.partition("=")[0]
    if _cpu_only() and version.startswith(_YNN_VERSIONS) and name not in xla_flags:
        os.environ["XLA_FLAGS"] = f"{xla_flags} {_NO_YNN}".strip()
    devices_set = "JAX_NUM_CPU_DEVICES" in os.environ or _FORCED in xla_flags
    if cores and not devices_set:
        devices = 1 << (min(_cpus(), _MAX_CPU_DEVICES).bit_length() - 1)
        jax.config.update("jax_num_cpu_devices", devices)
    hosts.join()


def environment() -> dict[str, Any]:
    """Returns versions, devices and the commit, as recorded by a run."""
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
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def commit() -> str:
    """Returns the commit of this code, with "+changes" if `changes` finds any."""
    return _git("rev-parse", "HEAD").decode()[:10] + "+changes" * bool(changes())


def changes() -> bytes:
    """Returns how the Python files differ from those of the commit, as a patch.

    Untracked files at the root, in folders with tracked ones and in packages are
    additions; files that git ignores are left out. Empty without git.
    """
    tracked = _git("ls-files", "-z", "--", "*.py")
    if not tracked:
        return b""
    folders = {name.partition(b"/")[0] for name in tracked.split(b"\0")}
    patch = _git(*_DIFF, "HEAD", "--", "*.py", failed=b"the changes are unknown\n")
    others = _git("ls-files", "-z", "--others", "--exclude-standard", "--", "*.py")
    names = [name for name in others.split(b"\0") if name]
    folders |= {x[:-12] for x in names if re.fullmatch(rb"[^/]+/__init__\.py", x)}
    for name in names:
        folder, separator, _ = name.partition(b"/")
        if folder in folders or not separator:
            patch += _git(*_DIFF, "--no-index", "--", os.devnull, os.fsdecode(name))
    # Staged and untracked files are in one order.
    return b"".join(sorted(re.split(rb"^(?=diff --git )", patch, flags=re.MULTILINE)))


def record_environment(workdir: Path) -> None:
    """Writes `environment.json`, and `changes.diff` if there are changes."""
    text, patch = json.dumps(environment(), indent=2), changes()
    if patch:
        if len(patch) > _MAX_CHANGES:
            end = f"\ncut here, {_MAX_CHANGES:,} of {len(patch):,} bytes\n"
            patch = patch[:_MAX_CHANGES] + end.encode()
        storage.write(workdir / "changes.diff", patch)
    else:
        (workdir / "changes.diff").unlink(missing_ok=True)
    storage.write(workdir / "environment.json", text + "\n")


def _git(*command: str, failed: bytes = b"") -> bytes:
    """Returns the output of a git command at the root of the code, or `failed`."""
    try:
        process = subprocess.run(
            ["git", *command], cwd=_ROOT, capture_output=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return failed
    differs = "--no-index" in command and process.returncode == 1
    return process.stdout if process.returncode == 0 or differs else failed
