"""`consume`: a topic onto stdout."""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import Output, OutputOption
from headrace.cli.session import session
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.clients import Reader
    from headrace.model import Record


def consume(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    from_: Annotated[
        str,
        typer.Option("--from", metavar="POSITION", help="earliest, latest, an offset, or a time."),
    ] = "earliest",
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    group: Annotated[
        str | None, typer.Option(help="As a member of this group, which commits what was printed.")
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("-n", "--max", metavar="MAX", help="Stop after so many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on at the end; else stop there.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Print records, up to the topic's present end or on and on."""
    if maximum is not None and maximum < 1:
        raise BadInput(f"-n must be 1 or more, not {maximum}", hint="leave it out for all")

    from headrace.clients import Reader
    from headrace.model import parse_position

    start = parse_position(from_)
    reader = Reader(
        topic,
        connection=session.connection(),
        start=start,
        partition=partition,
        group=group,
        follow=follow,
    )
    with reader:
        count = _print_all(reader, maximum, commit=group is not None, output=output)
    sys.stderr.write(f"{count:,} records\n")


def _print_all(reader: "Reader", maximum: int | None, commit: bool, output: Output) -> int:
    printer = _PRINTERS[output]()
    count = 0
    for batch in _limited(reader, maximum):
        printer.records(batch)
        sys.stdout.buffer.flush()
        count += len(batch)
        if commit:
            reader.commit(batch)  # only now: what was not printed is not done
    printer.end()
    sys.stdout.buffer.flush()
    return count


def _limited(reader: "Reader", maximum: int | None) -> Iterator[list["Record"]]:
    left = maximum
    for batch in reader.batches():
        yield batch if left is None else batch[:left]
        if left is not None:
            left -= len(batch)
            if left <= 0:
                return


class _Lines:
    """A record a line."""

    def records(self, batch: list["Record"]) -> None:
        from headrace.services.record_lines import to_line

        sys.stdout.buffer.writelines(map(to_line, batch))

    def end(self) -> None:
        pass


class _Document:
    """One JSON array, written as records come."""

    def __init__(self) -> None:
        self._separator = b"["

    def records(self, batch: list["Record"]) -> None:
        from headrace.services.record_lines import to_line

        for record in batch:
            sys.stdout.buffer.write(self._separator + to_line(record).rstrip())
            self._separator = b",\n"

    def end(self) -> None:
        sys.stdout.buffer.write(b"[]\n" if self._separator == b"[" else b"]\n")


class _Table:
    """Columns of fixed width, so that rows can be shown as they come."""

    _COLUMNS = (("partition", 9), ("offset", 10), ("time", 23), ("key", 20), ("value", 60))

    def __init__(self) -> None:
        header = "  ".join(name.ljust(width) for name, width in self._COLUMNS)
        sys.stdout.write(header.rstrip() + "\n")
        sys.stdout.flush()

    def records(self, batch: list["Record"]) -> None:
        sys.stdout.writelines(map(self._row, batch))
        sys.stdout.flush()

    def end(self) -> None:
        pass

    def _row(self, record: "Record") -> str:
        cells = (
            str(record.partition),
            str(record.offset),
            _time(record.timestamp),
            _text(record.key, 20),
            _text(record.value, None),
        )
        widths = [width for _, width in self._COLUMNS]
        row = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return row.rstrip() + "\n"


_PRINTERS: dict[Output, Callable[[], _Lines | _Document | _Table]] = {
    Output.ndjson: _Lines,
    Output.json: _Document,
    Output.table: _Table,
}


def _time(timestamp: int) -> str:
    if timestamp < 0:
        return "-"
    moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp % 1000:03d}"


def _text(value: bytes | None, width: int | None) -> str:
    if value is None:
        return "null"
    text = value.decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return shown if width is None or len(shown) <= width else shown[: width - 1] + "…"
