"""Timing of systems that take turns in short blocks, on the same machine.

Each system is a process (with its own environment, allocator and peak memory) that
waits while another one is measured. Each round visits all systems, in the reverse order
of the previous round; the reported numbers are medians over all rounds.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from results import records, timings
from results.records import OURS, ROOT
from results.timings import DEFAULT_MALLOC, SAME_MALLOC
from training import runtime

THREADS = 2
TUNED = {"tune_memory": True}  # the malloc settings of `train.py`


@dataclasses.dataclass(frozen=True)
class System:
    """A measured system: `benchmarks.systems.worker MODULE MODE SPEC`."""

    name: str
    module: str
    mode: str
    spec: dict


def mallocs(name: str, module: str, mode: str, spec: dict) -> list[System]:
    """Returns a system with both malloc settings, its own first."""
    plain, tuned = (System(name, module, mode, x) for x in (spec, spec | TUNED))
    if module == "ours":
        return [tuned, dataclasses.replace(plain, name=name + DEFAULT_MALLOC)]
    return [plain, dataclasses.replace(tuned, name=name + SAME_MALLOC)]


def against(
    peer: str,
    module: str,
    spec: dict,
    peer_spec: dict,
    *,
    mode: str = "generated",
    suffix: str = "",
) -> list[System]:
    """Returns this project and another system, each with both malloc settings.

    Args:
        peer: name of the other system.
        module: its module, which runs in mode "step".
        spec: specification of this project's system.
        peer_spec: specification of the other system.
        mode: mode of this project's system.
        suffix: appended to every name.
    """
    return [
        *mallocs(f"{OURS}{suffix}", "ours", mode, spec),
        *mallocs(f"{peer}{suffix}", module, "step", peer_spec),
    ]


def parser(
    description: str, name: str, *, rounds: int, steps: int | None = None
) -> argparse.ArgumentParser:
    """Returns the command-line parser shared by the benchmarks."""
    result = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--rounds", type=int, default=rounds, help="rounds over all systems")
    add("--steps", type=int, default=steps, help="steps per block")
    add("--only", nargs="*", help="names of systems to measure")
    write = argparse.BooleanOptionalAction
    add("--write", action=write, default=True, help="write results/")
    return result


def peers_python() -> str:
    """Returns the other libraries' interpreter, in `.bench-venv`.

    The environment is created if it is missing, or if benchmarks/requirements.txt has
    changed.
    """
    folder, requirements = ROOT / ".bench-venv", ROOT / "benchmarks/requirements.txt"
    python = folder / "bin" / "python"
    installed = folder / "requirements.txt"  # written last: the requirements installed
    wanted = requirements.read_text()
    if not installed.exists() or installed.read_text() != wanted:
        print(f"creating {folder}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        command = [python, "-m", "pip", "install", "-q", "-r", requirements]
        subprocess.run(command, check=True)
        installed.write_text(wanted)
    return str(python)


def worker_command(module: str, mode: str, spec: dict) -> list[str]:
    """Returns the command of the process of a system."""
    is_peer = module.startswith(("joey", "minigrid", "pytorch"))
    python = peers_python() if is_peer else sys.executable
    worker = "benchmarks.systems.worker"
    return [python, "-m", worker, module, mode, json.dumps(spec)]


def process_environment(threads: int = THREADS) -> dict[str, str]:
    """Returns the environment of a measured process."""
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS"
    return os.environ | dict.fromkeys(names, str(threads)) | {"JAX_PLATFORMS": "cpu"}


def use_cores(count: int = THREADS) -> None:
    """Restricts this process to `count` cores, and thus XLA's thread pool."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def _start(system: System) -> subprocess.Popen:
    print(f"starting {system.name}", file=sys.stderr, flush=True)
    return subprocess.Popen(
        worker_command(system.module, system.mode, system.spec),
        cwd=ROOT,
        env=process_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=use_cores,
    )


def _answer(name: str, process: subprocess.Popen) -> dict:
    """Facts about a system, then seconds and units of steps, and the peak memory."""
    line = process.stdout.readline()
    if not line:
        code = process.wait()
        raise SystemExit(f"error: {name} ended with status {code} (see above)")
    return json.loads(line)


def measure(
    systems: Sequence[System], args: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Measures the systems side by side.

    Returns:
        For each name: median_ms per step, rate (median over steps, in units per
        second), rounds (median of each round, in ms), peak_mb, steps, and the info of
        the system.
    """
    infos, blocks = {}, {}
    with contextlib.ExitStack() as stack:  # ends the processes
        running = {}
        for system in systems:
            if args.only and system.name not in args.only:
                continue
            process = running[system.name] = stack.enter_context(_start(system))
            infos[system.name], blocks[system.name] = _answer(system.name, process), []
        for i in range(args.rounds):
            for name in running if i % 2 == 0 else reversed(running):
                print(args.steps, file=running[name].stdin, flush=True)
                blocks[name].append(_answer(name, running[name]))
    return {name: _summary(blocks[name]) | info for name, info in infos.items()}


def _summary(blocks: list[dict]) -> dict:
    seconds, units = (
        [x for block in blocks for x in block[name]] for name in ("seconds", "units")
    )
    rates = [u / s for u, s in zip(units, seconds, strict=True)]
    return {
        "median_ms": round(1e3 * statistics.median(seconds), 2),
        "rate": round(statistics.median(rates), 2),
        "rounds": [round(1e3 * statistics.median(b["seconds"]), 2) for b in blocks],
        "peak_mb": round(max(block["peak_mb"] for block in blocks)),
        "steps": len(seconds),
    }


def report(
    name: str,
    args: argparse.Namespace,
    measured: dict[str, dict[str, Any]],
    **fields: Any,
) -> None:
    """Prints the table of docs/, and writes the record.

    `fields` are further ones of the record.
    """
    record = {"name": name, "systems": measured, **fields} | environment()
    print(timings.table(record))
    if args.write and not args.only:
        write(records.BENCHMARKS, record)


def write(file: str, record: records.Record) -> None:
    """Writes a record into a file of results/records/."""
    path = records.FOLDER / file
    records.write(path, record)
    print(f"wrote {record['name']} in {path.relative_to(ROOT)}")


def environment(threads: int = THREADS) -> dict:
    """Returns the device, platform, commit and command of this measurement."""
    return {
        "device": f"{_processor()}, {threads} thread{'s' * (threads > 1)}",
        "platform": platform.platform(terse=True),
        "commit": runtime.commit(),
        "command": " ".join(["python", *sys.orig_argv[1:]]),
    }


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
