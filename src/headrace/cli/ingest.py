"""`ingest`: files to Kafka, on Spark."""

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.output import Output, OutputOption, grid, show
from headrace.cli.progress import TerminalProgress
from headrace.cli.session import session
from headrace.cli.spark_options import MasterOption
from headrace.errors import BadInput


class Value(StrEnum):
    """What a record's value is."""

    json = "json"
    csv = "csv"
    avro = "avro"


class Format(StrEnum):
    """What the files are."""

    csv = "csv"
    jsonl = "jsonl"


class Guarantee(StrEnum):
    """What a crash may do."""

    exactly_once = "exactly-once"
    at_least_once = "at-least-once"


def ingest(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, folders, globs.")],
    topic: Annotated[str, typer.Option(help="The topic.")],
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The key's column; else the schema's.")
    ] = None,
    schema: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE", help="clickstream, a TOML file of columns, or an .avsc file."
        ),
    ] = "clickstream",
    format: Annotated[
        Format | None,
        typer.Option(help="What the files are; else .jsonl, .ndjson, .json are JSON lines."),
    ] = None,
    value: Annotated[
        Value, typer.Option(help="What a record's value is; avro needs the schema registry.")
    ] = Value.json,
    guarantee: Annotated[
        Guarantee, typer.Option(help="at-least-once uses Spark's own sink.")
    ] = Guarantee.exactly_once,
    event_time: Annotated[
        bool, typer.Option("--event-time", help="The event's time becomes the record's timestamp.")
    ] = False,
    max_bad: Annotated[
        float, typer.Option(metavar="SHARE", help="The greatest share of bad rows, 0 to 1.")
    ] = 0.1,
    changed_is_new: Annotated[
        bool, typer.Option("--changed-is-new", help="Send what changed in a file, not refuse it.")
    ] = False,
    master: MasterOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Send files to a topic, exactly once; run again, it sends only what is new."""
    if not 0 <= max_bad <= 1:
        raise BadInput(f"--max-bad is {max_bad}", hint="give a share between 0 and 1")

    from headrace.spark.ingest.job import ingest as run
    from headrace.spark.ingest.options import IngestOptions
    from headrace.spark.ingest.schema import find_schema

    rows = find_schema(schema)
    if key is not None:
        rows.column(key)
    options = IngestOptions(
        paths=paths,
        topic=topic,
        schema=rows,
        key=key,
        format=None if format is None else format.value,
        value=value.value,
        guarantee=guarantee.value,
        event_time=event_time,
        max_bad=max_bad,
        changed_is_new=changed_is_new,
        master=master,
    )
    with TerminalProgress() as progress:
        result = run(options, session.connection(), progress)
    columns = (">files", ">rows read", ">sent", ">dead", ">skipped", ">seconds", ">rows/s")
    show(asdict(result), output, lambda: grid(columns, [tuple(asdict(result).values())]))
