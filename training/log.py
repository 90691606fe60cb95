"""Logging of a run: metrics.jsonl, TensorBoard, and a progress bar or plain lines."""

import contextlib
import json
import math
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax

import storage
from training.state import Metrics

_IN_FLIGHT = 16  # maximum number of dispatched steps with pending metrics


class Log:
    """Collects and writes the metrics of a run; only the first host writes.

    Each row of metrics.jsonl has `step`, `split` and `seconds`, the time since the run
    began, summed over its resumptions. Rows after `start` are dropped, since these
    steps will be repeated.
    """

    def __init__(
        self,
        workdir: Path,
        start: int,
        total: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Opens the log of a run that continues after step `start`.

        Args:
            workdir: the run directory.
            start: number of steps already done.
            total: number of steps of the whole run.
            clock: returns the time in seconds.
        """
        self._writes = jax.process_index() == 0
        self._path = workdir / "metrics.jsonl"
        rows = [row for row in read_rows(self._path) if row["step"] <= start]
        if self._writes:
            storage.write(self._path, "".join(f"{json.dumps(r)}\n" for r in rows))
        self._board = self._writes and _open_board(workdir / "tensorboard", start + 1)
        self._display = _open_display(start, total) if self._writes else _Silent()
        self._start, self._total = start, total
        self._pending: deque[tuple[int, Metrics]] = deque()
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._clock = clock
        self._start_time = clock()
        self._earlier_seconds = rows[-1]["seconds"] if rows else 0.0
        # Step and time of the last row; pauses move the time forward.
        self._last_step, self._last_time = start, self._start_time
        self._waited = 0.0  # seconds without a batch since the last row

    def add(self, step: int, metrics: Metrics) -> None:
        """Adds the metrics of a step, which may still be computing."""
        self._pending.append((step, metrics))
        self._display.move(step)
        if len(self._pending) > _IN_FLIGHT:
            self._collect(self._pending.popleft())

    def wait(self) -> None:
        """Waits for all steps so far.

        Raises:
            FloatingPointError: if the metrics of a step are not finite.
        """
        while self._pending:
            self._collect(self._pending.popleft())

    def _collect(self, entry: tuple[int, Metrics]) -> None:
        step, metrics = entry
        for name, (value, count) in jax.device_get(metrics).items():
            if not (math.isfinite(value) and math.isfinite(count)):
                raise FloatingPointError(f"{name} is {value} at step {step}")
            self._sums[name][0] += float(value)
            self._sums[name][1] += float(count)

    def awaited(self, batches: Iterable[Future]) -> Iterator[Any]:
        """Yields the results of futures; adds up the time spent waiting for them."""
        for future in batches:
            begin = self._clock()
            batch = future.result()
            self._waited += self._clock() - begin
            yield batch

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in the block from the step rates."""
        self.wait()
        begin = self._clock()
        yield
        self._last_time += self._clock() - begin

    def train_row(self, step: int) -> None:
        """Writes the means and rates over the steps since the last call.

        `waiting` is the fraction of the time spent waiting for a batch.
        """
        self.wait()
        seconds = max(self._clock() - self._last_time, 1e-9)
        row = {n: s / max(c, 1) for n, (s, c) in self._sums.items() if n != "tokens"}
        row["steps_per_second"] = (step - self._last_step) / seconds
        row["waiting"] = self._waited / seconds
        if "tokens" in self._sums:
            row["tokens_per_second"] = self._sums["tokens"][0] / seconds
        self.row(step, "train", row)
        per_step = (self._clock() - self._start_time) / max(step - self._start, 1)
        self._display.report(step, row, per_step * (self._total - step))
        self._sums.clear()
        self._last_time, self._last_step, self._waited = self._clock(), step, 0.0

    def row(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Writes a row of metrics."""
        if not self._writes:
            return
        seconds = self._earlier_seconds + self._clock() - self._start_time
        row = {"step": step, "split": split, "seconds": round(seconds, 2), **values}
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if self._board:
            for name, value in values.items():
                self._board.add_scalar(f"{split}/{name}", value, step)

    def evaluation(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Writes a row of metrics and prints it."""
        self.row(step, split, values)
        self.say(f"step {step}  {split}  {_format(values)}")
        if self._board:
            self._board.flush()

    def images(self, step: int, paths: Iterable[Path]) -> None:
        """Adds PNG files to TensorBoard."""
        if not self._board:
            return
        import numpy as np
        from PIL import Image

        for path in paths:
            with Image.open(path, formats=["PNG"]) as image:
                pixels = np.asarray(image.convert("RGB"))
            self._board.add_image(path.stem, pixels, step, dataformats="HWC")

    def say(self, text: str) -> None:
        """Prints a line."""
        self._display.say(text)

    def close(self) -> None:
        """Closes the display and the files."""
        self._display.close()
        if self._board:
            self._board.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a metrics.jsonl, without incomplete lines."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def _format(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())


def _open_board(folder: Path, purge_step: int) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=purge_step)


def _open_display(start: int, total: int) -> "_Silent":
    with contextlib.suppress(ImportError):
        if sys.stderr.isatty():
            return _Bar(start, total)
    return _Lines(total)


class _Silent:
    """No display, for hosts that do not write."""

    def move(self, step: int) -> None: ...

    def report(self, step: int, values: Mapping[str, float], left: float) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class _Lines(_Silent):
    """Plain lines, for output that is not a terminal."""

    def __init__(self, total: int):
        self._total = total

    def report(self, step, values, left):
        self.say(f"step {step}/{self._total}  {_summary(values, left)}")

    def say(self, text):
        print(text, file=sys.stderr, flush=True)


class _Bar(_Silent):
    """A progress bar with the loss, the speed and the remaining time."""

    def __init__(self, start: int, total: int):
        from rich import console, progress

        self._progress = progress.Progress(
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.description}"),
            console=console.Console(stderr=True),
            refresh_per_second=1,
        )
        self._bar = self._progress.add_task("starting", completed=start, total=total)
        self._progress.start()

    def move(self, step):
        self._progress.update(self._bar, completed=step)

    def report(self, step, values, left):
        self._progress.update(self._bar, description=_summary(values, left))

    def say(self, text):
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self):
        self._progress.stop()


def _summary(values: Mapping[str, float], left: float) -> str:
    minutes, seconds = divmod(round(left), 60)
    parts = [f"loss {values['loss']:.4f}"] if "loss" in values else []
    if "tokens_per_second" in values:
        parts.append(f"{values['tokens_per_second']:,.0f} tokens/s")
    if "waiting" in values:
        parts.append(f"{values['waiting']:.1%} waiting for data")
    return "  ".join([*parts, f"{minutes}:{seconds:02} left"])
