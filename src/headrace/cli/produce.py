"""`produce`: stdin into a topic."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.output import Output, OutputOption, hint, show
from headrace.cli.session import session
from headrace.errors import BadInput


class Input(StrEnum):
    """What a line of stdin is."""

    text = "text"
    ndjson = "ndjson"


def produce(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    input_: Annotated[
        Input, typer.Option("--input", help="A line is a value, or a record as consume prints it.")
    ] = Input.text,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="S", help="With text: what stands between key and value."),
    ] = None,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="With ndjson: to the same partition numbers.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Send the lines of stdin and wait until all are acknowledged."""
    if key_separator == "":
        raise BadInput("--key-separator is empty", hint="give at least one character")
    if key_separator is not None and input_ is Input.ndjson:
        raise BadInput("--key-separator is for --input text", hint="leave one of them out")
    if keep_partitions and input_ is Input.text:
        raise BadInput("--keep-partitions is for --input ndjson", hint="leave one of them out")

    from headrace.services.produce import parser, produce_lines

    admin = session.admin()
    admin.topic(topic)  # an unknown topic is told before anything is read
    if sys.stdin.isatty():
        hint("type lines, end with Ctrl-D")
    parse = parser(topic, input_.value, key_separator, keep_partitions)
    result = produce_lines(admin.connection, sys.stdin.buffer, parse)
    document = {"sent": result.sent, "failed": result.failed, "error": result.error}
    show(document, output, lambda: f"{result.sent:,} sent, {result.failed:,} failed")
    if result.failed:
        sys.stderr.write(f"error: {result.failed:,} records failed, the first: {result.error}\n")
        hint("nothing of them is written; mend the cause and send them again")
        raise typer.Exit(1)
