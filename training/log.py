"""Logging of a run: metrics.jsonl, TensorBoard, and the display of its progress."""

import contextlib
import json
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from base import storage
from base.errors import UserError, parse_json
from training.display import Silent, duration, open_display
from training.state import SKIPPED, Metrics

_COMPILATION = "/jax/core/compile/"  # tracing, lowering and compilation
_WARM_UP = 5.0  # seconds of steps; the time left is shown after twice as many, or a row
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
        every: Mapping[str, int] = MappingProxyType({}),
        metric: tuple[str, str] = ("", "max"),
        sums: Mapping[str, list[float]] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ):
        """Opens the log of a run that continues after step `start`.

        Args:
            workdir: the run directory.
            start: number of steps already done.
            total: number of steps of the whole run.
            every: number of steps between the pauses of a name, as in
                {"saving": 100}; pauses also follow the last step.
            metric: name of the validation metric that selects the best checkpoint, and
                "max" or "min".
            sums: `sums()` of the log at `start`.
            clock: returns the time in seconds.
        """
        self._writes = jax.process_index() == 0
        self._path = workdir / "metrics.jsonl"
        rows = [row for row in read_rows(self._path) if row["step"] <= start]
        if self._writes:
            storage.write(self._path, "".join(f"{json.dumps(r)}\n" for r in rows))
        self._board_errors: list[OSError] = []
        self._board = self._writes and _open_board(
            workdir / "tensorboard", start + 1, self._board_errors
        )
        self._display = open_display(total) if self._writes else Silent()
        self._display.move(start)
        self._start, self._total = start, total
        self._pending: deque[tuple[int, Metrics]] = deque()
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._sums |= {name: [*pair] for name, pair in sums.items()}
        self._clock = clock
        self._start_time = clock()
        self._earlier_seconds = rows[-1]["seconds"] if rows else 0.0
        # Step and time of the last row; pauses move the time forward.
        self._last_step, self._last_time = start, self._start_time
        self._waited = 0.0  # seconds without a batch since the last row
        self._step_seconds = 0.0  # of the steps up to the last row, without pauses
        self._warm = start, 0.0  # step and seconds of steps at the end of the warm-up
        self._estimated = False  # whether the time left has been shown
        self._every = every
        self._pauses: dict[str, float] = {}  # seconds of the last pause of each name
        self._compile_seconds = 0.0  # of all programs
        jax.monitoring.register_event_duration_secs_listener(self._count_compilation)
        self._metric = metric
        self._best: tuple[float, int] | None = None  # value and step
        for row in rows:
            if row["split"] == "validation":
                self._update_best(row["step"], row)

    def add(self, step: int, metrics: Metrics) -> None:
        """Adds the metrics of a step, which may still be computing."""
        self._pending.append((step, metrics))
        self._display.move(step)
        if len(self._pending) > _IN_FLIGHT:
            self._collect(self._pending.popleft())
        warming = self._warm[0] == self._start
        if (warming or not self._estimated) and self._since(self._warm[1]) >= _WARM_UP:
            self.wait()
            if warming:
                self._warm = step, self._since(0.0)
            else:
                self._report(step, {})

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
                raise FloatingPointError(
                    f"{name} is {value} at step {step}, on batch {step - 1}"
                )
            self._sums[name][0] += float(value)
            self._sums[name][1] += float(count)

    def sums(self) -> dict[str, list[float]]:
        """Returns the sums and counts of the metrics since the last row of training.

        Without the number of tokens, from which a rate is computed.
        """
        self.wait()
        return {name: [*pair] for name, pair in self._sums.items() if name != "tokens"}

    def awaited(self, batches: Iterable[Future]) -> Iterator[Any]:
        """Yields the results of futures; adds up the time spent waiting for them."""
        for future in batches:
            begin = self._clock()
            batch = future.result()
            self._waited += self._clock() - begin
            yield batch

    @contextlib.contextmanager
    def paused(self, name: str, detail: str = "") -> Iterator[None]:
        """Excludes the time spent in the block from the step rates.

        Args:
            name: activity to show, such as "evaluating".
            detail: text after the name where there is room for a line.
        """
        self.wait()
        begin, compiled = self._clock(), self._compile_seconds
        self._display.begin(name, detail)
        try:
            yield
        finally:
            self._display.end()
            seconds = self._clock() - begin
            self._last_time += seconds
            compiled = self._compile_seconds - compiled
            self._pauses[name] = max(0.0, seconds - compiled)

    def _count_compilation(
        self, event: str, duration_secs: float, **_: str | int
    ) -> None:
        if event.startswith(_COMPILATION) and event.endswith("_duration"):
            self._compile_seconds += duration_secs

    def train_row(self, step: int) -> None:
        """Writes the means and rates over the steps since the last call.

        `waiting` is the fraction of the time spent waiting for a batch. `skipped` is a
        number of steps; if all were skipped, their metrics are left out.
        """
        self.wait()
        seconds = max(self._clock() - self._last_time, 1e-9)
        skipped = SKIPPED in self._sums and self._sums[SKIPPED][0] > 0
        row = {
            name: value / max(count, 1)
            for name, (value, count) in self._sums.items()
            if name != "tokens" and (count or name == SKIPPED or not skipped)
        }
        row["steps_per_second"] = (step - self._last_step) / seconds
        row["waiting"] = self._waited / seconds
        if "tokens" in self._sums:
            row["tokens_per_second"] = self._sums["tokens"][0] / seconds
        self.row(step, "train", row)
        self._step_seconds += seconds
        self._last_time, self._last_step, self._waited = self._clock(), step, 0.0
        self._report(step, row)
        self._sums.clear()

    def _report(self, step: int, row: Mapping[str, float]) -> None:
        elapsed = self._clock() - self._start_time
        self._display.report(step, row, elapsed, self._left(step))
        self._estimated = True

    def _left(self, step: int) -> str:
        """Estimates the time from a step to the end of training.

        The remaining steps at the mean rate, plus the last duration of each pause for
        each of its remaining occurrences. The first batch of a shape takes longer, so
        the warm-up does not count once as many seconds of steps have followed it, and
        compilation never does. ">" marks an estimate without a pause that has not
        occurred yet.
        """
        is_warm = self._since(self._warm[1]) >= _WARM_UP
        begin, warm_up = self._warm if is_warm else (self._start, 0.0)
        rate = self._since(warm_up) / max(step - begin, 1)
        left, complete = rate * (self._total - step), True
        for name, every in self._every.items():
            count = -(-self._total // every) - (step - 1) // every  # `step` included
            left += count * self._pauses.get(name, 0.0)
            complete = complete and (name in self._pauses or not count)
        return f"{'' if complete else '> '}{duration(left)} left"

    def _since(self, seconds: float) -> float:
        """Returns the seconds of steps so far, without pauses, minus `seconds`."""
        return self._step_seconds + self._clock() - self._last_time - seconds

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
        if self._board_errors:
            raise self._board_errors[0]

    def evaluation(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Writes a row of metrics and prints it."""
        self.row(step, split, values)
        self._update_best(step, values)
        parts = [f"step {step}", split]
        parts += [f"{name} {value:.4g}" for name, value in values.items()]
        if self._best:
            value, best = self._best
            earlier = f"best {self._metric[0]} {value:.4g} at step {best}"
            parts.append("(best so far)" if best == step else f"({earlier})")
        self.say("  ".join(parts))
        if self._board:
            self._board.flush()

    def _update_best(self, step: int, values: Mapping[str, float]) -> None:
        name, direction = self._metric
        if name not in values:
            return
        value = values[name]
        better = max if direction == "max" else min
        # Of equal values the last is the best, as for checkpoints.
        if self._best is None or better(value, self._best[0]) == value:
            self._best = value, step
            self._display.best = f"best {name} {value:.4g}"

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
        jax.monitoring.unregister_event_duration_listener(self._count_compilation)
        self._display.close()
        if self._board:
            self._board.close()
        if self._board_errors:
            raise self._board_errors[0]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a metrics.jsonl, without an incomplete last line.

    Raises:
        UserError: for a file that cannot be read, or another line that is not a row.
    """
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = dict(parse_json(line))
            kinds: dict[str, Any] = dict.fromkeys(row, int | float)  # of metrics
            kinds |= {"step": int, "split": str, "seconds": int | float}
            if not all(isinstance(row[name], kinds[name]) for name in kinds):
                raise ValueError
        except (ValueError, TypeError, KeyError):
            if number == len(lines):  # torn as the process was killed
                break
            raise UserError(
                f"{path}:{number} is damaged: remove the line, or restore the file "
                "from a copy"
            ) from None
        rows.append(row)
    return rows


def _open_board(folder: Path, purge_step: int, errors: list[OSError]) -> Any:
    """Returns a writer of TensorBoard events, whose errors go to `errors`.

    Raised in its thread they would end it, and the next calls would wait for ever;
    raised as it closes, they would come again at the exit of Python, with a traceback.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        return None

    def guarded(call: Callable[..., Any]) -> Callable[..., None]:
        def attempt(*args: Any) -> None:
            try:
                call(*args)
            except OSError as error:
                errors.append(error)

        return attempt

    board = SummaryWriter(str(folder), purge_step=purge_step)
    events = board.file_writer.event_writer._ev_writer
    for name in ("write_event", "flush", "close"):
        setattr(events, name, guarded(getattr(events, name)))
    return board
