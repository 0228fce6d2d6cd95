"""`generate`: made-up data in the shape of real data."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import Output, OutputOption, grid, show
from headrace.cli.progress import TerminalProgress

app = typer.Typer(help="Made-up data in the shape of real data.", no_args_is_help=True)


@app.command("clickstream")
def clickstream(
    rows: Annotated[int, typer.Option(metavar="N", help="How many, bad ones included.")],
    out: Annotated[
        Path,
        typer.Option(metavar="PATH", help="The file, replaced if it exists; .gz is compressed."),
    ],
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed gives the same rows.")] = 0,
    bad: Annotated[
        float,
        typer.Option(metavar="FRACTION", help="Share of bad rows, of every kind, 0 to 1."),
    ] = 0.0,
    output: OutputOption = Output.table,
) -> None:
    """Write the clickstream of a store as a CSV file."""
    from headrace.services.generate import write_clickstream

    with TerminalProgress() as progress:
        made = write_clickstream(out, rows, seed=seed, bad=bad, progress=progress)
    line = (made.path, made.rows, made.bad, made.bytes, str(made.seed))
    show(asdict(made), output, lambda: grid(("path", ">rows", ">bad", ">bytes", ">seed"), [line]))
