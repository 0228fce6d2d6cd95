"""Options that commands on Spark share."""

from typing import Annotated

import typer

MasterOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A Spark master; else headrace.toml's, else all cores."),
]
