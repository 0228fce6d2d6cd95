"""`stream`: a topic to tables, on Spark."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.batches import live, telling
from headrace.cli.ingest import Value
from headrace.cli.output import Output, OutputOption, grid, show
from headrace.cli.progress import TerminalProgress
from headrace.cli.session import session
from headrace.cli.spans import read_span
from headrace.cli.spark_options import MasterOption
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.spark.pipelines.batch import BatchDone


def stream(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE", help="clickstream, factory, invoices, or MODULE:PIPELINE."
        ),
    ],
    lake: Annotated[
        str, typer.Option(metavar="DIR", help="The folder of the tables and checkpoints.")
    ],
    topic: Annotated[
        str | None,
        typer.Option(
            help="The topic to read, or for a database's table to write; else the pipeline's own."
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="sqlite:///FILE or postgresql://..., for pipelines that read one."
        ),
    ] = None,
    value: Annotated[
        Value | None, typer.Option(help="What a record's value is; else the pipeline's own.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="What is there now, then end.")] = False,
    every: Annotated[
        str | None, typer.Option(metavar="SPAN", help="A batch each 10s, 1m, ... until stopped.")
    ] = None,
    realtime: Annotated[
        bool,
        typer.Option(
            "--realtime",
            help="Record by record, until stopped; to a topic only. It notes where it is --every.",
        ),
    ] = False,
    group: Annotated[
        str | None, typer.Option(help="The group that shows its lag; else headrace-PIPELINE.")
    ] = None,
    records_per_batch: Annotated[
        int, typer.Option(help="About so many records at once.", min=1)
    ] = 1_000_000,
    metrics: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="Serve its figures for Prometheus here.", min=0, max=65535
        ),
    ] = None,
    master: MasterOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Run a pipeline, to tables or a topic, exactly once; run again, it goes on where it was.

    With --realtime records are on their way at once, at least once each.
    """
    if once == (every is not None or realtime):
        raise BadInput("give --once, --every or --realtime", hint="--once, or --every 10s")

    from headrace.services.pipelines import find_streamed
    from headrace.spark.database.addresses import Address
    from headrace.spark.pipelines.runner import StreamOptions
    from headrace.spark.pipelines.runner import stream as run

    options = StreamOptions(
        pipeline=find_streamed(pipeline),
        lake=lake,
        topic=topic,
        database=None if database is None else Address.parse(database, may_have_password=False),
        value=None if value is None else value.value,
        every=None if every is None else read_span(every),
        realtime=realtime,
        group=group,
        records_per_batch=records_per_batch,
        master=master,
    )
    with (
        TerminalProgress() as progress,
        contextlib.nullcontext(telling(progress)) if once else live(progress) as tell,
        _measured(options.pipeline.name, metrics, progress) as measure,
    ):

        def heard(batch: "BatchDone") -> None:
            tell(batch)
            measure(batch)

        result = run(options, session.connection(), progress, on_batch=heard)
    columns = (">batches", ">records", ">rows", ">dead", ">duplicates", ">seconds")
    document = asdict(result) | {"seconds": round(result.seconds, 2)}
    show(document, output, lambda: grid(columns, [tuple(document.values())]))


@contextlib.contextmanager
def _measured(
    pipeline: str, port: int | None, progress: TerminalProgress
) -> "Iterator[Callable[[BatchDone], None]]":
    """What adds a batch to the figures that are served on a port, if they are."""
    if port is None:
        yield lambda _batch: None
        return

    from headrace.services.stream_metrics import StreamMetrics

    figures = StreamMetrics(pipeline)
    with figures.served(port) as served:
        progress.step(f"metrics on http://127.0.0.1:{served}/metrics")
        yield figures.tell
