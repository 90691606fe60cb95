"""Timing of systems that take turns in short blocks, on the same machine.

Each system is a process (with its own environment, allocator and peak memory) that
waits while another one is measured. Each round visits all systems, in the reverse order
of the previous round; the reported numbers are medians over all rounds.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.environment import ROOT, peers_python
from results import records, timings
from training import runtime

THREADS = 2
OURS = "this project"
TUNED = {"tune_memory": True}  # the malloc settings of `train.py`


@dataclasses.dataclass(frozen=True)
class System:
    """A measured system: `benchmarks.systems.worker MODULE MODE SPEC`."""

    name: str
    module: str
    mode: str
    spec: dict

    @property
    def peer(self) -> bool:
        """True if it runs in the environment of the other libraries."""
        return self.module.startswith(("joey", "minigrid", "pytorch"))


def mallocs(name: str, module: str, mode: str, spec: dict) -> list[System]:
    """Returns a system with both malloc settings, its default first."""
    default, other = System(name, module, mode, spec), spec | TUNED
    if module == "ours":
        as_it_is = dataclasses.replace(default, name=f"{name}, malloc as it is")
        return [System(name, module, mode, other), as_it_is]
    return [default, System(f"{name}, same malloc", module, mode, other)]


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
    description: str, name: str = "", *, rounds: int = 0, steps: int | None = None
) -> argparse.ArgumentParser:
    """Returns the command-line parser shared by the benchmarks."""
    result = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}" if name else None,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    if rounds:
        add("--rounds", type=int, default=rounds, help="rounds over all systems")
        add("--steps", type=int, default=steps, help="steps per block")
        add("--only", nargs="*", help="names of systems to measure")
    write = argparse.BooleanOptionalAction
    add("--write", action=write, default=True, help="write results/")
    return result


def worker_arguments(module: str, mode: str, spec: dict) -> list[str]:
    """Returns Python's arguments for the process of a system."""
    return ["-m", "benchmarks.systems.worker", module, mode, json.dumps(spec)]


def process_environment(threads: int = THREADS) -> dict[str, str]:
    """Returns the environment of a measured process."""
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS"
    return os.environ | dict.fromkeys(names, str(threads)) | {"JAX_PLATFORMS": "cpu"}


def use_cores(count: int = THREADS) -> None:
    """Restricts this process to `count` cores, and thus XLA's thread pool."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


class Process:
    """A running system."""

    def __init__(self, system: System):
        python = peers_python() if system.peer else sys.executable
        self.name = system.name
        self.process = subprocess.Popen(
            [python, *worker_arguments(system.module, system.mode, system.spec)],
            cwd=ROOT,
            env=process_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=use_cores,
        )
        self.info = self._answer()

    def run(self, steps: int) -> dict:
        """Returns seconds and units of each of `steps` steps, and the peak memory."""
        print(steps, file=self.process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise SystemExit(f"error: {self.name} ended with status {code} (see above)")
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
    with contextlib.ExitStack() as stack:
        running = []
        for system in systems:
            if args.only and system.name not in args.only:
                continue
            print(f"starting {system.name}", file=sys.stderr, flush=True)
            running.append(Process(system))
            stack.callback(running[-1].close)
        blocks = {process.name: [] for process in running}
        for process in _visits(running, args.rounds):
            blocks[process.name].append(process.run(args.steps))
        return {p.name: _summary(blocks[p.name]) | p.info for p in running}


def report_training(
    name: str,
    args: argparse.Namespace,
    systems: Sequence[System],
    **goals: float,
) -> None:
    """Measures training steps, and the rate of matrix products of the machine.

    The record has the fields of `ratios` and, for each system whose `gflop` is known,
    the `share` of the machine's rate that it reaches. A translator of another library
    counts as many as the last one of this project in its group.

    Args:
        name: name of the benchmark.
        args: the command line.
        systems: the measured systems, this project's first.
        **goals: further fields of the record, such as the goals of the ratios.
    """
    products = [
        System(f"XLA product {size}", "matmul", size, {})
        for size in ("2048,256,1024", "1024,1024,1024")
    ]
    measured = measure([*products, *systems], args)
    rates = [measured.pop(p.name)["rate"] for p in products if p.name in measured]
    limit = max(rates, default=math.nan)
    translators: dict[str | None, float | None] = {}  # gflop by group
    for system in systems:
        if values := measured.get(system.name):
            if "source" in system.spec:
                group = system.spec.get("group")
                if gflop := values.get("gflop", translators.get(group)):
                    translators[group] = values["gflop"] = gflop
            if gflop := values.get("gflop"):
                reached = gflop / values["median_ms"] * 1e3
                values["share"] = round(reached / limit, 3)
    report(
        name,
        args,
        measured,
        product_gflop_a_second=limit,
        **ratios(measured, systems),
        **goals,
    )


def report_rates(
    name: str,
    args: argparse.Namespace,
    systems: Sequence[System],
    **goals: float,
) -> None:
    """Measures rates alone; arguments as of `report_training`."""
    measured = measure(systems, args)
    report(name, args, measured, **ratios(measured, systems), **goals)


def ratios(
    measured: dict[str, dict[str, Any]], systems: Sequence[System]
) -> dict[str, float | None]:
    """Returns the ratios of this project's rates to the fastest other system's.

    `ratio` compares with systems that keep their default malloc settings,
    `ratio_same_malloc` with systems that have this project's settings. Only systems of
    the same `group` are compared; for a specification with a `key`, the fields are
    `ratio_KEY` and `ratio_same_malloc_KEY`.

    Args:
        measured: result of `measure`.
        systems: the measured systems, this project's first.

    Returns:
        Ratios by field; None where a system was not measured.
    """
    module, result = systems[0].module, {}
    for ours in systems:
        if ours.module != module or not ours.spec.get("tune_memory"):
            continue
        key = ours.spec.get("key")
        for name, tunes in ("ratio", False), ("ratio_same_malloc", True):
            peers = [
                s.name
                for s in systems
                if s.module != module
                and s.spec.get("group") == ours.spec.get("group")
                and bool(s.spec.get("tune_memory")) is tunes
            ]
            if peers:
                field = f"{name}_{key}" if key else name
                result[field] = ratio(measured, ours.name, peers)
    return result


def ratio(measured: dict, ours: str, peers: Sequence[str]) -> float | None:
    """Returns the ratio of our rate to the fastest peer's; None if one is missing."""
    rates = [measured[name]["rate"] for name in peers if name in measured]
    if not rates or ours not in measured:
        return None
    return round(measured[ours]["rate"] / max(rates), 2)


def _visits(running: list[Process], rounds: int) -> Iterator[Process]:
    for i in range(rounds):
        yield from running if i % 2 == 0 else reversed(running)


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
    """Prints the table, with the columns of docs/, and writes the record.

    Args:
        name: name of the benchmark.
        args: the command line.
        measured: result of `measure`.
        **fields: further fields of the record (ratios, goals, ...), printed below.
    """
    columns = timings.BENCHMARKS[name].columns
    rows = [["system", *columns]]
    for system, values in measured.items():
        rows.append([system, *(_text(values.get(field)) for field in columns.values())])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print(f"\n{name}")
    for system, *cells in rows:
        cells = [cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=True)]
        print("  ".join([system.ljust(widths[0]), *cells]))
    for field, value in fields.items():
        print(f"{field}: {_text(value)}")
    if args.write and not args.only:
        record = {"name": name, "systems": measured, **fields}
        write(records.BENCHMARKS, record | environment())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}"


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
