"""`lake`: the tables of a folder, and care for their files."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, coloured, grid, hint, show
from headrace.cli.progress import TerminalProgress
from headrace.cli.spans import read_span

if TYPE_CHECKING:
    from rich.text import Text

    from headrace.services.lake_care import TableCare, TableState

app = typer.Typer(help="The tables that pipelines write.", no_args_is_help=True)
LakeOption = Annotated[str, typer.Option(metavar="DIR", help="The folder of the tables.")]


@app.command("list")
def list_(lake: LakeOption, output: OutputOption = Output.table) -> None:
    """List tables with rows, files, bytes, version, and how far their pipeline has come."""
    from headrace.services.lake_care import list_tables

    tables = list_tables(lake)
    columns = ("table", ">rows", ">files", ">MB", ">version", "pipeline", ">batch", "up to", "")
    rows = [_row(table) for table in tables]
    show([table.to_json() for table in tables], output, lambda: grid(columns, rows))


def _row(table: "TableState") -> tuple[Any, ...]:
    places = [
        f"{topic}[{partition}] {end:,}"
        for topic, ends in table.offsets.items()
        for partition, end in ends.items()
    ]
    size = table.bytes / 1e6
    return (
        *(table.table, table.rows, table.files, size, table.version),
        *(table.pipeline, table.batch, "\n".join(places) or None),
        _problem(table.problem),
    )


def _problem(text: str | None) -> "str | Text":
    return coloured(text, "bold red") if text else ""


@app.command("care")
def care(
    lake: LakeOption,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE...", help="These; else all tables.")
    ] = None,
    keep: Annotated[
        str, typer.Option(metavar="SPAN", help="Keep files that versions of the last 7d need.")
    ] = "7d",
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; else show what would be done.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Join small files and remove old ones; safe while pipelines run."""
    from headrace.services.lake_care import care as run
    from headrace.services.lake_care import check_keep

    span = timedelta(seconds=read_span(keep))
    check_keep(span)
    with TerminalProgress() as progress:
        done = run(lake, tables or (), span, execute=execute, progress=progress)
    document = {"tables": [table.to_json() for table in done], "executed": execute}
    show(document, output, lambda: _done(done) if execute else _planned(done))
    if not execute and output is Output.table:
        hint("nothing is changed yet: --execute does it")
    if any(table.problem for table in done):
        raise typer.Exit(1)


def _planned(tables: "list[TableCare]") -> Any:
    columns = ("table", ">files", ">MB", ">small files", ">old files", ">MB of them", "")
    return grid(
        columns,
        [
            (
                *(t.table, t.files, t.bytes / 1e6, t.small, t.removed, t.removed_bytes / 1e6),
                _problem(t.problem),
            )
            for t in tables
        ],
    )


def _done(tables: "list[TableCare]") -> Any:
    columns = ("table", ">files", ">now", ">MB", ">now", ">old files removed", ">MB", "")
    return grid(
        columns,
        [
            (
                *(t.table, t.files, t.files_after, t.bytes / 1e6, (t.bytes_after or 0) / 1e6),
                *(t.removed, t.removed_bytes / 1e6),
                _problem(t.problem),
            )
            for t in tables
        ],
    )
