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

_IN_FLIGHT = 16  # steps dispatched and not waited for


class Log:
    """Collects a run's metrics and writes them; one of the hosts writes.

    Rows of metrics.jsonl carry `step`, `split` and `seconds` since the run began, over
    all its parts. Rows after `start` are dropped: the steps will be done again.
    """

    def __init__(
        self,
        workdir: Path,
        start: int,
        total: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Goes on after step `start` of `total`; `clock` is in seconds."""
        self._writes = jax.process_index() == 0
        self._path = workdir / "metrics.jsonl"
        rows = [row for row in read_rows(self._path) if row["step"] <= start]
        if self._writes:
            storage.write(self._path, "".join(f"{json.dumps(r)}\n" for r in rows))
        self._board = self._writes and _open_board(workdir / "tensorboard", start + 1)
        self._show = _open_display(start, total) if self._writes else _Silent()
        self._start, self._total = start, total
        self._pending: deque[tuple[int, Metrics]] = deque()
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._clock = clock
        self._begun = clock()
        self._before = rows[-1]["seconds"] if rows else 0.0
        # Since the last row: its step, and its time moved by what is not training.
        self._told, self._window = start, self._begun
        self._waited = 0.0  # for data, since the last row

    def add(self, step: int, metrics: Metrics) -> None:
        """Takes a step's metrics, still being computed, and waits for older ones."""
        self._pending.append((step, metrics))
        self._show.move(step)
        if len(self._pending) > _IN_FLIGHT:
            self._take(self._pending.popleft())

    def wait(self) -> None:
        """Waits for every step so far.

        Raises:
            FloatingPointError: if a step's metrics are not finite, naming the step.
        """
        while self._pending:
            self._take(self._pending.popleft())

    def _take(self, entry: tuple[int, Metrics]) -> None:
        step, metrics = entry
        for name, (value, count) in jax.device_get(metrics).items():
            if not (math.isfinite(value) and math.isfinite(count)):
                raise FloatingPointError(f"{name} is {value} at step {step}")
            self._sums[name][0] += float(value)
            self._sums[name][1] += float(count)

    def awaited(self, batches: Iterable[Future]) -> Iterator[Any]:
        """Yields batches, and counts the time until each is there as waiting."""
        for batch in batches:
            begun = self._clock()
            made = batch.result()
            self._waited += self._clock() - begun
            yield made

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keeps what happens inside out of the steps' time."""
        self.wait()
        begun = self._clock()
        yield
        self._window += self._clock() - begun

    def train_row(self, step: int) -> None:
        """Writes the means since the last such row, and the rates.

        `waiting` is the share of the time in which no batch was ready.
        """
        self.wait()
        seconds = max(self._clock() - self._window, 1e-9)
        row = {n: s / max(c, 1) for n, (s, c) in self._sums.items() if n != "tokens"}
        row["steps_per_second"] = (step - self._told) / seconds
        row["waiting"] = self._waited / seconds
        if "tokens" in self._sums:
            row["tokens_per_second"] = self._sums["tokens"][0] / seconds
        self.row(step, "train", row)
        left = (self._clock() - self._begun) / max(step - self._start, 1)
        self._show.tell(step, row, left * (self._total - step))
        self._sums.clear()
        self._window, self._told, self._waited = self._clock(), step, 0.0

    def row(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Writes a row of metrics."""
        if not self._writes:
            return
        seconds = self._before + self._clock() - self._begun
        row = {"step": step, "split": split, "seconds": round(seconds, 2), **values}
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if self._board:
            for name, value in values.items():
                self._board.add_scalar(f"{split}/{name}", value, step)

    def evaluation(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Writes a row of metrics and tells it."""
        self.row(step, split, values)
        self.say(f"step {step}  {split}  {_format(values)}")
        if self._board:
            self._board.flush()

    def images(self, step: int, paths: Iterable[Path]) -> None:
        """Shows PNG files in TensorBoard."""
        if not self._board:
            return
        import numpy as np
        from PIL import Image

        for path in paths:
            with Image.open(path) as image:
                pixels = np.asarray(image.convert("RGB"))
            self._board.add_image(path.stem, pixels, step, dataformats="HWC")

    def say(self, text: str) -> None:
        """Prints a line."""
        self._show.say(text)

    def close(self) -> None:
        """Ends the display and the files."""
        self._show.close()
        if self._board:
            self._board.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a metrics.jsonl; a last line cut short is left out."""
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
    """Shows nothing: the hosts that do not write."""

    def move(self, step: int) -> None: ...

    def tell(self, step: int, values: Mapping[str, float], left: float) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class _Lines(_Silent):
    """A line now and then, where there is no terminal."""

    def __init__(self, total: int):
        self._total = total

    def tell(self, step, values, left):
        self.say(f"step {step}/{self._total}  {_summary(values, left)}")

    def say(self, text):
        print(text, file=sys.stderr, flush=True)


class _Bar(_Silent):
    """A bar with the loss, the speed and the time left."""

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

    def tell(self, step, values, left):
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
