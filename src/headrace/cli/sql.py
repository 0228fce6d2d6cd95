"""`sql`: topics and tables by name, once or as they grow."""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, console, grid, write_json, write_ndjson
from headrace.cli.progress import TerminalProgress
from headrace.cli.session import session
from headrace.cli.spans import read_span
from headrace.cli.spark_options import MasterOption
from headrace.errors import BadInput

if TYPE_CHECKING:
    from rich.live import Live

    from headrace.spark.sql.running import Answer, BatchRead, Column, SqlOptions, Update

SHOWN_ROWS = 100
LINES_AROUND = 6  # of a terminal, that a table's head and foot need


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SELECT ... FROM TOPIC or TABLE.")],
    lake: Annotated[
        str | None, typer.Option(metavar="DIR", help="A folder of tables; else only topics.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as records come, until stopped.")
    ] = False,
    from_: Annotated[
        str,
        typer.Option("--from", metavar="POSITION", help="earliest, latest, or a time."),
    ] = "earliest",
    every: Annotated[
        str, typer.Option(metavar="SPAN", help="With --follow, look for more each 500ms, 10s, ...")
    ] = "1s",
    limit: Annotated[
        int | None,
        typer.Option(help=f"Show at most so many rows; {SHOWN_ROWS} in a table, else all.", min=1),
    ] = None,
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:PIPELINE", help="A pipeline of yours that knows a topic's fields."
        ),
    ] = None,
    master: MasterOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Ask topics and tables in SQL; with --follow, see the answer change."""
    if follow and output is Output.json:
        raise BadInput("--follow has no end, and -o json is one document", hint="use -o ndjson")

    from headrace.services.pipelines import BUILT_IN, find_pipeline
    from headrace.spark.sql.running import SqlOptions, ask
    from headrace.spark.sql.tables import refuse_avro

    named = [find_pipeline(reference) for reference in pipeline or ()]
    refuse_avro(named)
    options = SqlOptions(
        text=query,
        lake=lake,
        start=_start(from_),
        pipelines=(*named, *BUILT_IN.values()),
        every=read_span(every),
        master=master,
    )
    if follow:
        _follow(options, limit, output)
        return
    with TerminalProgress() as progress:
        answer = ask(options, session.connection, progress)
    _show(answer, limit, output)


def _start(text: str) -> Any:
    from headrace.model import AtOffset, parse_position

    start = parse_position(text)
    if isinstance(start, AtOffset):
        raise BadInput(
            f"--from {text} is an offset", hint="earliest, latest or a time; or WHERE offset >= ..."
        )
    return start


# --- once ---


def _show(answer: "Answer", limit: int | None, output: Output) -> None:
    if output is not Output.table:
        documents = _documents(answer.columns, answer.rows(limit))
        write_ndjson(documents) if output is Output.ndjson else write_json(list(documents))
        return
    shown = limit or SHOWN_ROWS
    rows = list(answer.rows(shown + 1))
    console().print(_table(answer.columns, rows[:shown]))
    if len(rows) > shown:
        _note(answer.count() - shown)


def _documents(columns: "Iterable[Column]", rows: Iterable[list[Any]]) -> Iterable[dict[str, Any]]:
    names = [column.name for column in columns]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise BadInput(
            f"two columns are called {twins[0]!r}, and JSON has room for one",
            hint="give one another name with AS",
        )
    return (dict(zip(names, row, strict=True)) for row in rows)


def _table(columns: "Iterable[Column]", rows: Iterable[list[Any]]) -> Any:
    heads = [f">{column.name}" if column.is_number else column.name for column in columns]
    return grid(heads, ([_cell(value) for value in row] for row in rows))


def _cell(value: Any) -> str | None:
    """A cell's text: numbers as they are, they may be ids."""
    import orjson

    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=str).decode()


def _note(more: int) -> None:
    if more > 0:
        sys.stderr.write(f"{more:,} more rows; --limit shows more\n")


# --- on and on ---


def _follow(options: "SqlOptions", limit: int | None, output: Output) -> None:
    from headrace.spark.sql.running import follow

    shown: _Lines | _Updating = _Lines(limit) if output is Output.ndjson else _Updating(limit)
    with TerminalProgress() as progress, shown:
        follow(
            options,
            session.connection,
            shown.update,
            progress,
            whole=output is Output.table,
            on_batch=lambda batch: shown.tell(batch, progress.step),
        )


class _Lines:
    """A row a line: those that are new or have changed."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def update(self, update: "Update") -> None:
        shown = update.rows[: self._limit]
        write_ndjson(_documents(update.columns, shown))
        _note(len(update.rows) - len(shown))

    def tell(self, batch: "BatchRead", step: Callable[[str], None]) -> None:
        step(_told(batch))


class _Updating:
    """A table that is drawn again in its place on a terminal; new rows go below the others."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit or SHOWN_ROWS
        self._console = console()
        self._live: Live | None = None
        self._last: Update | None = None
        self._foot = ""

    def __enter__(self) -> "_Updating":
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, update: "Update") -> None:
        if update.whole and self._console.is_terminal:
            self._last = update
            self._draw()
            return
        self._console.print(_table(update.columns, update.rows[: self._limit]))
        _note(len(update.rows) - self._limit)

    def tell(self, batch: "BatchRead", step: Callable[[str], None]) -> None:
        if self._live is None:
            step(_told(batch))
            return
        self._foot = _told(batch)
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.live import Live

        assert self._last is not None
        room = max(1, min(self._limit, self._console.height - LINES_AROUND))
        more = len(self._last.rows) - room
        foot = "; ".join(filter(None, (self._foot, f"{more:,} more rows" if more > 0 else "")))
        drawn = Group(_table(self._last.columns, self._last.rows[:room]), foot)
        if self._live is None:
            self._live = Live(drawn, console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(drawn, refresh=True)


def _told(batch: "BatchRead") -> str:
    return f"batch {batch.batch}: {batch.records:,} records in {batch.seconds:.1f} s"
