"""Makes faults many times and writes what they cost, as a table.

    python tests/tools/fault_table.py
    python tests/tools/fault_table.py --short --page=FILE
    python tests/tools/fault_table.py --only=SIGTERM --minutes=5

The first command writes docs/faults.md; the last one replaces the rows with that text
and takes no more than five minutes for the tries of each. After each fault but
a slow disk, the same command is started again. The run directory at the end is compared
bit for bit with that of an undisturbed run.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import faults
import jax
import jobs
import numpy as np
import sweep_storm
import toy
from smoke import ROOT

from training import checkpoints, loop
from training.cluster.job import FAULT

PAGE = ROOT / "docs/faults.md"
_HEAD = """\
<!-- Written by tests/tools/fault_table.py. -->
# Fault tolerance

`{command}` injects each fault of the table into runs of a toy task ([`tests/toy.py`](../tests/toy.py)). \
Except with the slow disk, the disturbed run is then started again with the same command. When the run has finished, its run directory is compared with the run \
directory of an undisturbed run. Three things must be equal: every number of the last checkpoint, bit for bit; the steps of all \
checkpoints; and the rows of `metrics.jsonl`, apart from times. The faults of sweeps are injected into a sweep of \
[`kernel_regression:smoke`](../configs/kernel_regression.py); its run names and its `table.csv` must equal those of an undisturbed sweep. \
[Damage](resuming.md#damage) says how a run reacts to damaged files and full disks.

| fault | attempts | lost |
|---|---:|---|
"""  # noqa: E501
_TAIL = """
Runs that are killed repeatedly train for {many} steps, runs with SIGTERM or a dead process \
for {some}, and all others for {few}. They save a checkpoint every {every} steps. The sweep has eight trials of 6 steps each. All runs use CPU devices. \
If a run finishes before all kills are done, the kills continue on a new run. A kill comes at a random time up to {seconds} s \
(in the sweep, {sweep_seconds} s) after the start of a process, so kills hit start-up, restore, steps, saves \
and evaluations. In the sweep, the kills hit in turn a run, the coordinator (`sweep.py` itself), and a run that is \
saving a checkpoint. If a run has two processes, both are on one machine, with a heartbeat timeout \
of {heartbeat} s. `make faults ARGS='--only=TEXT --minutes=M'` repeats only the faults whose row in the table contains \
TEXT. For each fault, no attempt begins after M minutes ({minutes} by default), so a fault may have fewer \
attempts than planned.

[All documentation](index.md)
"""  # noqa: E501
_FEW, _SOME, _MANY = 60, 300, 1000  # steps of a run
_EVERY, _HEARTBEAT, _MINUTES = 10, 10, 15
_SECONDS = 12.0  # latest moment of a kill


_FIELDS = {
    "model.width": 400,
    "save_every": _EVERY,
    "eval_every": 2 * _EVERY,
    "log_every": _EVERY,
}


def flags(steps, workdir):
    """Flags of a training with a number of steps."""
    fields = {"train_steps": steps, **_FIELDS}
    overrides = [f"--config.{name}={value}" for name, value in fields.items()]
    return ["--config=tests/toy.py", f"--workdir={workdir}", *overrides]


def config_of(steps):
    """The config that `flags` describes."""
    config = toy.get_config()
    config.update_from_flattened_dict({"train_steps": steps, **_FIELDS})
    return config


def content(workdir):
    """Returns what a run directory holds: (checkpoints, state, rows of the log)."""
    like = jax.eval_shape(toy.Toy(config_of(1)).objective.init, jax.random.key(0))
    with checkpoints.Checkpoints(workdir) as saved:
        steps = saved.steps()
    state = jax.tree.map(np.asarray, checkpoints.restore(workdir, "last", like))
    return steps, state, faults.untimed_rows(workdir)


def lost(workdir, reference):
    """Returns in what a run directory differs from a reference; "" for nothing."""
    try:
        steps, state, rows = content(workdir)
    except Exception as error:
        return f"the run cannot be read: {error}"
    differences = []
    if steps != reference[0]:
        differences.append(f"checkpoints {steps} instead of {reference[0]}")
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(reference[1]), strict=True)
    if any(a.tobytes() != b.tobytes() for a, b in pairs):
        differences.append("the last state differs")
    if rows != reference[2]:
        differences.append("rows of metrics.jsonl differ")
    strays = [x.name for x in (workdir / "checkpoints").iterdir() if "tmp" in x.name]
    if strays:
        differences.append(f"left behind: {', '.join(strays)}")
    return ", ".join(differences)


class Table:
    """Faults on toy runs; each method named after a fault returns its losses."""

    def __init__(self, folder, scale, minutes, seed=0):
        """Prepares the faults.

        Args:
            folder: an empty folder for the runs.
            scale: the tries are multiplied with it, at least one each.
            minutes: no further try of a fault begins after this time.
            seed: seed of the random moments, processes and files.
        """
        self.folder, self.scale, self.minutes = folder, scale, minutes
        self.random, self.number = random.Random(seed), 0
        self.references = {}

    def tries(self, number):
        """Yields the numbers of the tries, from 0, as long as there is time."""
        end = time.monotonic() + 60 * self.minutes
        for i in range(max(1, round(number * self.scale))):
            if i and time.monotonic() > end:
                return
            yield i

    def workdir(self):
        """A new run directory."""
        self.number += 1
        return self.folder / f"run_{self.number}"

    def start(self, steps, workdir, processes, *command):
        """Starts a training, or another command with its flags."""
        return jobs.start(
            *(command or ["train.py"]),
            *flags(steps, workdir),
            processes=processes,
            devices=1,
            logs=workdir.with_suffix(".logs"),
        )

    def end(self, steps, workdir, processes):
        """Trains to the end; returns what is lost."""
        statuses = jobs.finish(self.start(steps, workdir, processes))
        if any(statuses):
            output = jobs.output(workdir.with_suffix(".logs"))
            last = output[0].strip().splitlines()[-1:]
            return f"ends with {statuses}: {' '.join(last)[:200]}"
        return lost(workdir, self.reference(steps, processes))

    def reference(self, steps, processes):
        """The content of an undisturbed run."""
        if (steps, processes) not in self.references:
            workdir = self.workdir()
            statuses = jobs.finish(self.start(steps, workdir, processes), 1000)
            assert not any(statuses), jobs.output(workdir.with_suffix(".logs"))
            self.references[steps, processes] = content(workdir)
        return self.references[steps, processes]

    def wait(self, path, workdir, started):
        """Waits until a file of a run exists."""
        while not path.exists():
            if any(process.poll() is not None for process in started):
                raise RuntimeError(jobs.output(workdir.with_suffix(".logs")))
            time.sleep(0.01)

    def storm(self, processes, number):
        """Repeated kill -9 of all processes; a finished run begins anew."""
        reference, kills, losses = self.reference(_MANY, processes), 0, []
        workdir = self.workdir()
        for _ in self.tries(number):
            killed = False
            while not killed:  # a fast run may end before
                started = self.start(_MANY, workdir, processes)
                time.sleep(self.random.uniform(0, _SECONDS))
                killed = any(process.poll() is None for process in started)
                for process in started:
                    process.kill()
                jobs.finish(started)
                if (workdir / "checkpoints" / str(reference[0][-1])).exists():
                    losses.append(self.end(_MANY, workdir, processes))
                    workdir = self.workdir()
            kills += 1
        return kills, [*losses, self.end(_MANY, workdir, processes)]

    def damage(self, kind, number):
        """Damage to a random file of the newest checkpoint, and training on."""
        trained, losses = self.workdir(), []
        train_quietly(trained)
        reference = content(trained)
        newest = reference[0][-1]
        names = faults.files(trained / "checkpoints" / str(newest))
        for seed in self.tries(number):
            name = f"checkpoints/{newest}/{self.random.choice(names)}"
            workdir = faults.damaged_copy(trained, self.workdir(), kind, name, seed)
            train_quietly(workdir)
            losses.append(lost(workdir, reference))
            shutil.rmtree(workdir)
        return len(losses), losses

    def signal(self, kind, expected, number):
        """A signal to the first and the second process in turn, which ends both."""
        losses = []
        for i in self.tries(number):
            workdir = self.workdir()
            started = self.start(_SOME, workdir, 2)
            step = self.random.randrange(1, 4) * _EVERY
            self.wait(workdir / f"checkpoints/{step}/SHA256SUMS", workdir, started)
            started[i % 2].send_signal(kind)
            statuses = sorted(jobs.finish(started))
            loss = self.end(_SOME, workdir, 2)
            losses.append(loss if statuses == expected else f"statuses {statuses}")
        return len(losses), losses

    def stuck(self, number):
        """A process that is alive but makes no further batch."""
        losses = []
        for i in self.tries(number):
            workdir = self.workdir()
            marker = workdir.with_suffix(".halted")
            halting = ["tests/tools/halting.py", "batch", f"25@{i % 2}", str(marker)]
            started = self.start(_FEW, workdir, 2, *halting, "--watchdog=3")
            statuses = jobs.finish(started)
            loss = self.end(_FEW, workdir, 2)
            ended = FAULT in statuses and 0 not in statuses
            losses.append(loss if ended else f"statuses {statuses}")
        return len(losses), losses

    def full_disk(self, number):
        """A disk that is full during training and larger later."""
        if not faults.can_mount():
            return 0, []
        losses, reference = [], self.reference(_FEW, 1)
        for i in self.tries(number):
            disk, copy = self.workdir(), self.workdir()
            disk.mkdir()
            command = flags(_FEW, disk / "run")
            training = [sys.executable, "train.py", *command, "--tune_memory=false"]
            larger = f"mount -o remount,size=8m {disk}"
            keep = ["cp", "-r", disk / "run", copy]
            kib = 220 + 20 * (i % 8)
            with mock.patch.dict(os.environ, jobs.environment(1)):
                states, output = faults.on_small_disk(
                    disk, kib, training, larger, training, keep
                )
            if states[0] == 0:
                continue  # the disk was large enough
            if states[1:] != [0, 0, 0]:
                losses.append(f"ends with {states}: {output[-1]}")
            else:
                losses.append(lost(copy, reference))
        return len(losses), losses

    def slow_disk(self, number):
        """A disk on which each rename of a checkpoint takes a second."""
        plain, losses = self.workdir(), []
        train_quietly(plain)
        reference = content(plain)

        def rename(source, target, original=os.rename):
            if Path(target).parent.name == "checkpoints":
                time.sleep(1)
            original(source, target)

        for _ in self.tries(number):
            workdir = self.workdir()
            with mock.patch("os.rename", rename):
                train_quietly(workdir)
            losses.append(lost(workdir, reference))
        return len(losses), losses

    def two_runs(self, number):
        """A second training in the run directory of the first, which is then killed."""
        losses = []
        for _ in self.tries(number):
            workdir = self.workdir()
            marker = workdir.with_suffix(".halted")
            halting = ["tests/tools/halting.py", "batch", "25", str(marker)]
            started = self.start(_FEW, workdir, 1, *halting)
            self.wait(marker, workdir, started)
            command = ["train.py", *flags(_FEW, workdir), "--tune_memory=false"]
            second = faults.start(*command)
            _, errors = second.communicate()
            refused = second.returncode == 1 and "is in use" in errors
            started[0].kill()
            jobs.finish(started)
            loss = self.end(_FEW, workdir, 1)
            losses.append(loss if refused else f"not refused: {errors[:200]}")
        return len(losses), losses

    def sweep(self, number):
        """kill -9 of the coordinator and the runs of a sweep; compares its table."""
        trials = 8 if self.scale == 1 else 2
        widths = ",".join(f"0.{n}" for n in range(1, trials + 1))
        workers = min(2, len(os.sched_getaffinity(0)))
        flags = [f"--grid=model.width={widths}", f"--workers={workers}"]
        calm, total, losses = self.workdir(), 0, []
        command = sweep_storm.command(calm, *flags)
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        rng = np.random.default_rng(self.random.randrange(2**32))
        number = max(1, round(number * self.scale))
        names = [f"{n:03}.seed0" for n in range(trials)]
        end = time.monotonic() + 60 * self.minutes
        while total < number and (not losses or time.monotonic() < end):
            disturbed = self.workdir()  # another sweep if one has ended before
            status, kills = sweep_storm.storm(disturbed, flags, number - total, rng)
            total += sum(kills.values())
            if status:
                losses.append(f"ends with {status}")
            elif sorted(x.name for x in (disturbed / "trials").iterdir()) != names:
                losses.append("other runs")
            elif len({(x / "table.csv").read_text() for x in (calm, disturbed)}) > 1:
                losses.append("the table differs")
            else:
                losses.append("")
        return total, losses


_KILL = "repeated `kill -9` at random times:"
_NEWEST = "of the newest checkpoint"
# A method of `Table` and its arguments, the last one the number of tries.
FAULTS = {
    f"{_KILL} one process": (Table.storm, 1, 50),
    f"{_KILL} two processes": (Table.storm, 2, 50),
    f"{_KILL} a sweep or its runs": (Table.sweep, 20),
    f"a flipped bit in a random file {_NEWEST}": (Table.damage, "bit", 20),
    f"a truncated file {_NEWEST}": (Table.damage, "truncated", 20),
    f"a deleted file {_NEWEST}": (Table.damage, "deleted", 20),
    f"a folder in the place of a file {_NEWEST}": (Table.damage, "folder", 20),
    "a slow disk: a second for each checkpoint": (Table.slow_disk, 3),
    "a full disk, enlarged later": (Table.full_disk, 4),
    "a second training in the same run directory": (Table.two_runs, 3),
    "SIGTERM to either of two processes": (Table.signal, signal.SIGTERM, [143] * 2, 4),
    "one of two processes is alive but stuck": (Table.stuck, 4),
    "one of two processes dies by `kill -9`": (
        Table.signal,
        signal.SIGKILL,
        [-signal.SIGKILL, FAULT],
        4,
    ),
}


def train_quietly(workdir):
    """Trains for a few steps in this process, without messages."""
    with contextlib.redirect_stderr(io.StringIO()):
        loop.train(config_of(_FEW), workdir)


def line(name, tries, losses):
    """A row of the table."""
    failures = [loss for loss in losses if loss]
    if not tries:
        return f"| {name} | 0 | not tried: no permission to mount |"
    if not failures:
        return f"| {name} | {tries} | nothing |"
    reasons = "; ".join(dict.fromkeys(failures)).replace("|", " ").replace("\n", " ")
    return f"| {name} | {tries} | **{len(failures)} of {len(losses)}**: {reasons} |"


def page(lines, *, short=False):
    """Returns the page with the rows `lines`."""
    head = _HEAD.format(command="make faults" + " ARGS=--short" * short)
    tail = _TAIL.format(
        many=f"{_MANY:,}",
        some=_SOME,
        few=_FEW,
        every=_EVERY,
        seconds=f"{_SECONDS:g}",
        sweep_seconds=f"{sweep_storm.SECONDS:g}",
        heartbeat=_HEARTBEAT,
        minutes=_MINUTES,
    )
    return head + "".join(f"{row}\n" for row in lines) + tail


def main(arguments=None):
    """Writes the page; returns the number of rows with losses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="few tries")
    parser.add_argument("--page", type=Path, default=PAGE, help="file to write")
    parser.add_argument("--only", default="", help="text of the rows to make again")
    parser.add_argument(
        "--minutes",
        type=float,
        default=_MINUTES,
        help="maximum time of the tries of a fault",
    )
    options = parser.parse_args(arguments)
    scale = 0.05 if options.short else 1
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        table = Table(Path(folder), scale, options.minutes)
        lines = []
        for name, (fault, *values) in FAULTS.items():
            if options.only in name:
                lines.append(line(name, *fault(table, *values)))
                print(lines[-1], flush=True)
            elif options.page.exists():
                before = options.page.read_text("utf-8").splitlines()
                lines += [x for x in before if x.startswith(f"| {name} |")]
    options.page.write_text(page(lines, short=options.short), "utf-8")
    return sum("**" in row for row in lines)


if __name__ == "__main__":
    sys.exit(main() > 0)
