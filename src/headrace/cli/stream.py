"""`stream`: a topic to tables, on Spark."""

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import Output, OutputOption, grid, show
from headrace.cli.progress import TerminalProgress
from headrace.cli.session import session
from headrace.cli.spark_options import MasterOption
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.spark.pipelines.batch import BatchDone

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def stream(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="clickstream, or MODULE:PIPELINE.")
    ],
    lake: Annotated[str, typer.Option(metavar="DIR", help="The folder of the tables.")],
    topic: Annotated[
        str | None, typer.Option(help="The topic to read; else the pipeline's own.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="What is there now, then end.")] = False,
    every: Annotated[
        str | None, typer.Option(metavar="SPAN", help="A batch each 10s, 1m, ... until stopped.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="The group that shows its lag; else headrace-PIPELINE.")
    ] = None,
    records_per_batch: Annotated[
        int, typer.Option(help="At most so many records at once.", min=1)
    ] = 1_000_000,
    master: MasterOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Run a pipeline from a topic to tables, exactly once; run again, it goes on where it was."""
    if once == (every is not None):
        raise BadInput("give --once or --every", hint="--once, or --every 10s")

    from headrace.services.pipelines import find_pipeline
    from headrace.spark.pipelines.runner import StreamOptions
    from headrace.spark.pipelines.runner import stream as run

    options = StreamOptions(
        pipeline=find_pipeline(pipeline),
        lake=lake,
        topic=topic,
        every=None if every is None else read_span(every),
        group=group,
        records_per_batch=records_per_batch,
        master=master,
    )
    with TerminalProgress() as progress:

        def tell(batch: "BatchDone") -> None:
            counts = batch.counts
            progress.step(
                f"batch {batch.batch}: {counts.rows_in:,} records, {counts.rows_out:,} rows, "
                f"{counts.rows_dead:,} dead, {counts.duplicates:,} duplicates "
                f"in {batch.seconds:.1f} s"
            )

        result = run(options, session.connection(), progress, on_batch=tell)
    columns = (">batches", ">records", ">rows", ">dead", ">duplicates", ">seconds")
    document = asdict(result) | {"seconds": round(result.seconds, 2)}
    show(document, output, lambda: grid(columns, [tuple(document.values())]))


def read_span(text: str) -> float:
    """A span of time in seconds.

    >>> read_span("500ms"), read_span("10s"), read_span("2m")
    (0.5, 10.0, 120.0)
    """
    found = _SPAN.fullmatch(text)
    if found is None or not float(found[1]):
        raise BadInput(f"{text!r} is no span of time", hint="like 500ms, 10s or 1m")
    return float(found[1]) * _SECONDS[found[2]]
