"""`replay`: a bounded range of a topic through a pipeline, or only what its tables lack."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.batches import telling
from headrace.cli.ingest import Value
from headrace.cli.output import Output, OutputOption, grid, hint, show
from headrace.cli.progress import TerminalProgress
from headrace.cli.session import session
from headrace.cli.spark_options import MasterOption
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.services.backfill import BackfillPlan
    from headrace.services.replay import Doing, Plan, Wish

_POSITIONS = "earliest, latest, an offset, a time, or 0:100,1:250 by partition"


def replay(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="clickstream, or MODULE:PIPELINE.")
    ],
    topic: Annotated[str, typer.Option(help="The topic.")],
    lake: Annotated[str, typer.Option(metavar="DIR", help="The folder of the tables.")],
    from_: Annotated[
        str | None, typer.Option("--from", metavar="POSITION", help=f"Included: {_POSITIONS}.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="POSITION", help="Excluded: the same.")] = None,
    missing: Annotated[
        bool,
        typer.Option("--missing", help="Only what was read before and is in no table of --lake."),
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without, only count the records.")
    ] = False,
    value: Annotated[
        Value | None, typer.Option(help="What a record's value is; else the pipeline's own.")
    ] = None,
    records_per_batch: Annotated[
        int, typer.Option(help="At most so many records at once.", min=1)
    ] = 1_000_000,
    master: MasterOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Run a bounded range of a topic through a pipeline, exactly once, into tables of its own.

    --lake is new, or was begun by the same replay, which then goes on. With --missing it is a
    stream's, and what its tables have lost is put back.
    """
    if not missing and (from_ is None or to is None):
        raise BadInput(
            "give --from and --to",
            hint="--from earliest --to latest is everything there is; --to is excluded",
        )

    from headrace.services.pipelines import find_pipeline
    from headrace.services.replay import Doing, Wish, of_topic

    definition = of_topic(
        find_pipeline(pipeline),
        topic,
        None if value is None else value.value,
        alone=not missing,
    )
    wish = Wish(topic, from_ or "earliest", to or "latest", definition, lake)
    with TerminalProgress() as progress:
        doing = Doing(records_per_batch, master, telling(progress)) if execute else None
        run = _backfill if missing else _replay
        plan, result = run(wish, doing, progress)
    document = plan.to_json() | {"executed": execute} | result
    show(document, output, lambda: _drawn(plan, result))
    if plan.is_empty:
        hint("nothing to do: nothing is missing" if missing else "nothing to do: an empty range")
    elif not execute:
        hint("nothing was written; add --execute to do it")


def _replay(
    wish: "Wish", doing: "Doing | None", progress: TerminalProgress
) -> "tuple[Plan, dict[str, Any]]":
    from headrace.services.replay import execute_replay, plan_replay

    connection = session.connection()
    plan = plan_replay(wish, connection, progress)
    _warn(plan.notes, progress)
    if doing is None:
        return plan, {}
    done = execute_replay(plan, doing, connection, progress)
    return plan, asdict(done) | {"seconds": round(done.seconds, 2)}


def _backfill(
    wish: "Wish", doing: "Doing | None", progress: TerminalProgress
) -> "tuple[BackfillPlan, dict[str, Any]]":
    from headrace.services.backfill import execute_backfill, plan_backfill

    connection = session.connection()
    plan = plan_backfill(wish, connection, progress)
    _warn(plan.notes, progress)
    for table, files in plan.lost.items():
        progress.warn(f"table {table} has lost {len(files):,} files: {', '.join(files[:3])} ...")
    if doing is None:
        return plan, {}
    return plan, asdict(execute_backfill(plan, connection, progress, master=doing.master))


def _warn(notes: tuple[str, ...], progress: TerminalProgress) -> None:
    for note in notes:
        progress.warn(note)


def _drawn(plan: "Plan | BackfillPlan", result: dict[str, Any]) -> list[Any]:
    document = plan.to_json()
    title = f"{plan.wish.topic}: {plan.total:,} records"
    if document.get("done"):
        title += f", {document['done']:,} of them done before"
    rows = [tuple(each.values()) for each in document["ranges"]]
    parts = [grid(("partition", ">from", ">to", ">records"), rows, title)]
    if result:
        columns = [f">{name.removeprefix('rows_')}" for name in result]
        parts.append(grid(columns, [tuple(result.values())], "this run"))
    return parts
