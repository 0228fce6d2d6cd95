"""`run`: an app's consumers, until they are told to stop."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, grid, show
from headrace.cli.session import session
from headrace.errors import BadInput
from headrace.observe.signals import stopping_on_signals

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.services.instances import Instance

LOOK_EVERY = 0.25
COLUMNS = (
    *("consumer", ">instance", ">partitions", ">handled", ">per second", ">in flight"),
    *(">waiting", ">parked", ">lag", ">failed", "state", "last error"),
)
WARNING = 30


def run(
    reference: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="A headrace.App, for instance shop:app.")
    ],
    instances: Annotated[int, typer.Option(help="How many processes run it.", min=1)] = 1,
    output: OutputOption = Output.table,
) -> None:
    """Run an app's consumers until SIGINT or SIGTERM, then let handlers finish and commit.

    A second signal does not wait for handlers. If one instance fails, all stop, with status 1.
    """
    from headrace.services.instances import Instance, load_app

    app = load_app(reference)
    if not app.consumers:
        raise BadInput(f"{reference} has no consumers", hint="declare one with @app.consumer(...)")
    given = None if app.has_connection else session.connection()
    started = [Instance(reference, number, instances, given) for number in range(instances)]
    try:
        with stopping_on_signals(partial(_stop_all, started)), _live(started):
            _watch(started)
    finally:
        for instance in started:
            if instance.alive:
                instance.kill()
    rows = _document(started)
    show(rows, output, lambda: _table(rows, {}))
    for instance in started:
        if failure := instance.failure():
            raise failure


def _watch(started: Sequence["Instance"]) -> None:
    """Until all have ended; the failure of one stops the others."""
    asked = False
    while any(instance.alive for instance in started):
        for instance in started:
            instance.join(LOOK_EVERY / len(started))
        if not asked and any(instance.failure() for instance in started):
            asked = True
            _stop_all(started)


def _stop_all(started: Sequence["Instance"]) -> None:
    for instance in started:
        instance.stop()


@contextmanager
def _live(started: Sequence["Instance"]) -> Iterator[None]:
    """A table that keeps itself up to date on a terminal; elsewhere warnings as lines."""
    import threading

    from rich.console import Console
    from rich.live import Live

    shown = Console(stderr=True, highlight=False)
    rates = Rates()
    live = Live(console=shown, auto_refresh=False, transient=True) if shown.is_terminal else None
    over = threading.Event()

    def refresh() -> None:
        while not over.wait(LOOK_EVERY):
            for instance in started:
                _say_events(instance, shown if live else None)
            if live is not None:
                rows = _document(started)
                live.update(_table(rows, rates.update(rows)), refresh=True)

    thread = threading.Thread(target=refresh, daemon=True)
    if live is not None:
        live.start()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for instance in started:
            _say_events(instance, None)
        if live is not None:
            live.stop()


def _say_events(instance: "Instance", shown: Any) -> None:
    for level, text in instance.new_events():
        if level < WARNING and shown is not None:
            continue  # the table shows who has what
        line = f"[{instance.number}] {text}"
        if shown is None:
            sys.stderr.write(f"· {line}\n")
        else:
            shown.print(line, markup=False)


class Rates:
    """Records a second, by consumer and instance, smoothed over about two seconds."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], tuple[float, int]] = {}
        self._rates: dict[tuple[str, int], float] = {}

    def update(self, rows: Sequence[dict[str, Any]]) -> dict[tuple[str, int], float]:
        now = time.monotonic()
        for row in rows:
            place = (row["name"], row["instance"])
            at, handled = self._last.get(place, (now - LOOK_EVERY, row["handled"]))
            rate = (row["handled"] - handled) / max(now - at, 1e-3)
            before = self._rates.get(place, rate)
            self._rates[place] = before + 0.25 * (rate - before)
            self._last[place] = (now, row["handled"])
        return self._rates


def _document(started: Sequence["Instance"]) -> list[dict[str, Any]]:
    return [
        {"instance": instance.number, **consumer}
        for instance in started
        for consumer in instance.status()
    ]


def _table(rows: Sequence[dict[str, Any]], rates: dict[tuple[str, int], float]) -> "RenderableType":
    cells = [
        (
            row["name"],
            row["instance"],
            len(row["partitions"]),
            row["handled"],
            f"{rates.get((row['name'], row['instance']), 0.0):,.0f}" if rates else "",
            row["in_flight"],
            row["waiting"],
            row["parked"],
            "" if row["lag"] is None else row["lag"],
            row["failed"],
            row["state"],
            (row["last_error"] or "")[:60],
        )
        for row in rows
    ]
    return grid(COLUMNS, cells)
