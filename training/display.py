"""Progress of a run on standard error: a bar in a terminal, or plain lines."""

import contextlib
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

_LONG = 5.0  # seconds of an activity that is announced each time


def open_display(total: int) -> "Silent":
    """Returns a progress bar in a terminal, otherwise plain lines."""
    with contextlib.suppress(ImportError):
        if sys.stderr.isatty():
            return _Bar(total)
    return _Lines(total)


class Silent:
    """No display, for hosts that do not write.

    Attributes:
        best: text on the best evaluation so far.
    """

    best = ""

    def move(self, step: int) -> None:
        """Shows the step."""

    def begin(self, activity: str, detail: str = "") -> None:
        """Shows an activity, such as "evaluating"; a line also has the detail."""

    def end(self) -> None:
        """Ends the activity."""

    def report(
        self, step: int, values: Mapping[str, float], elapsed: float, left: str
    ) -> None:
        """Shows a row of training, with the elapsed and the remaining time."""

    def say(self, text: str) -> None:
        """Shows a line of text."""

    def close(self) -> None:
        """Ends the display."""


class _Lines(Silent):
    """Plain lines, for output that is not a terminal."""

    def __init__(self, total: int):
        self._total, self._step = total, 0
        self._begun = ("", 0.0)  # activity and when it began
        self._lengths: dict[str, float] = {}  # seconds of each activity, the last time

    def move(self, step):
        self._step = step

    def begin(self, activity, detail=""):
        long = self._lengths.get(activity, math.inf) >= _LONG
        if long and activity not in ("starting", "restoring"):
            self.say(f"step {self._step}/{self._total}  {activity}{detail}")
        self._begun = activity, time.monotonic()

    def end(self):
        activity, begun = self._begun
        self._lengths[activity] = time.monotonic() - begun

    def report(self, step, values, elapsed, left):
        done = f"step {step}/{self._total} ({step / self._total:.0%})"
        times = f"{duration(elapsed)} elapsed", left
        self.say("  ".join([done, *_rates(values), *times]))

    def say(self, text):
        print(text, file=sys.stderr, flush=True)


class _Bar(Silent):
    """A progress bar with the activity, the loss, the speed and the remaining time.

    A narrow terminal shows the most important columns that fit.
    """

    def __init__(self, total: int):
        from rich import console, progress

        self._console = console.Console(stderr=True)
        self._progress = progress.Progress(console=self._console, refresh_per_second=1)
        self._bar = self._progress.add_task("starting", total=total)
        self._rates: list[str] = []
        self._left = ""

    def move(self, step):
        self._progress.update(self._bar, completed=step)

    def begin(self, activity, detail=""):
        if activity == "drawing":  # after the end of the estimate
            self._left = ""
        self._draw(description=activity)

    def end(self):
        (task,) = self._progress.tasks
        self._draw(description="" if task.completed == task.total else "training")

    def report(self, step, values, elapsed, left):
        self._rates, self._left = _rates(values), left
        self._draw(completed=step)

    def _draw(self, **changes):
        self._progress.update(self._bar, **changes)
        (task,) = self._progress.tasks
        task.finished_time = None  # the clock goes on after the last step
        self._progress.columns = self._columns(2 * len(str(task.total)) + 1)
        self._progress.start()

    def _columns(self, steps_width: int) -> tuple[Any, ...]:
        """The columns that fit into the terminal, in order."""
        from rich import progress

        text = progress.TextColumn
        texts = [*self._rates[:2], self.best, *self._rates[2:]]
        candidates = [  # by importance: position, width, column
            (0, 10, text("{task.description:10}")),
            (2, steps_width, progress.MofNCompleteColumn()),
            (9, len(self._left), text(self._left)),
            (3, 4, text("{task.percentage:>3.0f}%")),
            (8, 7, progress.TimeElapsedColumn()),
            (1, 10, progress.BarColumn(10)),
            *((4 + i, len(x), text(x, markup=False)) for i, x in enumerate(texts) if x),
        ]
        columns, room = {}, self._console.width
        for position, width, column in candidates:
            if 0 < width <= room:
                columns[position], room = column, room - width - 1
        if 1 in columns:
            columns[1] = progress.BarColumn(min(10 + max(room, 0), 40))
        return tuple(columns[position] for position in sorted(columns))

    def say(self, text):
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self):
        self._progress.stop()


def _rates(values: Mapping[str, float]) -> list[str]:
    """Texts on the loss and the speed."""
    parts = [f"loss {values['loss']:.4f}"] if "loss" in values else []
    if "tokens_per_second" in values:
        parts.append(f"{values['tokens_per_second']:,.0f} tokens/s")
    if "waiting" in values:
        parts.append(f"{values['waiting']:.1%} waiting for data")
    return parts


def duration(seconds: float) -> str:
    """Returns seconds as "M:SS" or "H:MM:SS"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
