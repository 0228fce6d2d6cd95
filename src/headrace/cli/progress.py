"""Progress of long operations on stderr: steps as lines, downloads as a bar."""

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn, TaskID

    from headrace.observe.progress import Unit


class TerminalProgress:
    """Draws a bar on a terminal; elsewhere (logs, CI) a line now and then."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._lock = threading.Lock()
        self._total = self._done = self._told = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def step(self, text: str) -> None:
        self._write(f"· {text}")

    def warn(self, text: str) -> None:
        self._write(f"warning: {text}")

    def begin(self, what: str, total: int, unit: "Unit" = "bytes") -> None:
        self._total, self._done, self._told = total, 0, 0
        amount = f"{total / 1e6:,.0f} MB" if unit == "bytes" else f"{total:,} {unit}"
        self.step(f"{what} ({amount})")
        if sys.stderr.isatty():
            self._bar = _make_bar(unit)
            self._task = self._bar.add_task("", total=total)
            self._bar.start()

    def advance(self, amount: int) -> None:
        with self._lock:
            self._done += amount
            if self._bar is not None and self._task is not None:
                self._bar.advance(self._task, amount)
                return
            quarter = self._done * 4 // max(1, self._total)
            if quarter > self._told:
                self._told = quarter
                self._write(f"  {quarter * 25} %")

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _write(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _make_bar(unit: "Unit") -> "Bar":
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    counted = (DownloadColumn(), TransferSpeedColumn()) if unit == "bytes" else (_rate(unit),)
    return Bar(
        "  ",
        BarColumn(),
        *counted,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _rate(unit: str) -> "ProgressColumn":
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        """How many of how many, and how fast."""

        def render(self, task: "Task") -> Text:
            speed = f"{task.speed:,.0f} {unit}/s" if task.speed else ""
            return Text(f"{task.completed:,.0f} of {task.total or 0:,.0f} {unit}  {speed}")

    return Rate()
