"""`demo`: the whole story in about two minutes."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, coloured, console, grid, show
from headrace.cli.progress import TerminalProgress
from headrace.errors import BadInput

if TYPE_CHECKING:
    from rich.text import Text

    from headrace.labs.files_story import FileStory
    from headrace.labs.handlers_story import HandlersAccount
    from headrace.labs.story import Story

DEMO_CLUSTER = "demo"


def demo(
    file: Annotated[
        Path | None, typer.Option(help="A clickstream CSV file to send; else one is made.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running, as `--name demo`.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """A stream into Kafka, handled in parallel; a file to tables; brokers killed, all adds up."""
    from headrace.labs.handlers_story import tell_handlers
    from headrace.labs.story import tell
    from headrace.local import LocalCluster

    with_files = find_spec("pyspark") is not None
    if file is not None and not file.is_file():
        raise BadInput(f"there is no file {file}", hint="give a clickstream CSV file")
    files = None
    with TerminalProgress() as progress:
        cluster = LocalCluster(3, name=DEMO_CLUSTER if keep else None, progress=progress)
        try:
            cluster.up(fresh=keep)
            story = tell(cluster, progress)
            handlers = tell_handlers(cluster, progress, story.account.sent)
            if with_files:
                from headrace.labs.files_story import tell_files

                files = tell_files(cluster, progress, file)
        finally:
            if not keep and cluster.folder.exists():
                progress.step("stopping the cluster")
                cluster.down(wipe=True)
    document = story.account.to_json()
    if files is not None:
        document = files.account.to_json() | {"stream": document}
    document["handlers"] = handlers.to_json()
    chapters = [*_chapters(story), *_handler_chapters(handlers)]
    show(document, output, lambda: [*chapters, *_file_chapters(files)])
    if output is Output.table:
        _next_steps(keep)
    files_balanced = files is None or files.account.balanced
    if not (story.account.balanced and handlers.balanced and files_balanced):
        raise typer.Exit(1)


def _handler_chapters(account: "HandlersAccount") -> list[Any]:
    line = (
        *(account.events, account.handled, account.repeated, account.missing),
        *(account.out_of_order, _verdict(account.balanced)),
    )
    columns = (">events", ">handled", ">repeated", ">missing", ">out of order", "")
    return [
        grid(columns, [line], "handled in parallel, each user's in order, restarted half-way"),
        f"in {account.seconds:.1f} s, the restart included; one handler for each partition would "
        f"take {account.seconds_by_partition:.0f} s",
    ]


def _file_chapters(story: "FileStory | None") -> list[Any]:
    if story is None:
        return ["For the third act, files and tables on Spark: pip install 'headrace[spark]'"]
    account = story.account
    line = (
        *(account.file_rows, account.kafka_rows, account.table_rows, account.dead_rows),
        *(account.duplicates, account.missing, _verdict(account.balanced)),
    )
    columns = (
        *(">rows in the file", ">in the topic", ">in events", ">dead letters"),
        *(">duplicates", ">missing", ""),
    )
    title = f"a file to a topic to tables, though broker {story.killed_broker} was killed meanwhile"
    chapters = [
        grid(("brand", ">sold", ">revenue"), story.best, "what table revenue says"),
        grid(tuple(f">{name}" for name in story.tables), [tuple(story.tables.values())], "tables"),
        grid(columns, [line], title),
        f"sent in {story.seconds:.1f} s (start of Spark included), made into tables in "
        f"{story.stream_seconds:.1f} s; the same ingest once more sent {story.sent_again:,} rows",
    ]
    if story.reasons:
        chapters.insert(
            0, grid(("a row that", ">dead letters"), list(story.reasons.items()), "dead letters")
        )
    return chapters


def _chapters(story: "Story") -> list[Any]:
    account = story.account
    leaders = [
        (str(partition), before, after, story.per_partition.get(partition, 0), bar)
        for partition, (before, after) in enumerate(
            zip(story.leaders_before, story.leaders_after_kill, strict=False)
        )
        for bar in [_bar(story.per_partition.get(partition, 0), account.read)]
    ]
    verdict = _verdict(account.balanced)
    return [
        grid(
            ("partition", ">leader", f">after broker {story.killed_broker} died", ">events", ""),
            leaders,
            "where the events went",
        ),
        grid(("event", ">count"), list(story.per_kind.items()), "what they were"),
        grid(
            (">sent", ">acknowledged", ">read back", ">duplicates", ">missing", "verdict"),
            [
                (
                    account.sent,
                    account.acknowledged,
                    account.read,
                    account.duplicates,
                    account.missing,
                    verdict,
                )
            ],
            f"every event accounted for, though broker {story.killed_broker} was killed half-way",
        ),
        f"written in {story.seconds_to_write:.1f} s (failover included), "
        f"read in {story.seconds_to_read:.1f} s",
    ]


def _verdict(balanced: bool) -> "Text":
    if balanced:
        return coloured("balanced", "bold green")
    return coloured("NOT BALANCED", "bold red")


def _bar(part: int, whole: int, width: int = 80) -> "Text":
    return coloured("█" * round(width * part / whole) if whole else "", "cyan")


def _next_steps(keep: bool) -> None:
    out = console()
    out.print()
    if keep:
        out.print("The cluster is still up. Look around:")
        out.print("  headrace --profile demo topic describe ecommerce.events")
        out.print("  headrace --profile demo consume ecommerce.events -n 5")
        out.print("  headrace down --name demo --wipe")
    else:
        out.print(
            "Next: `headrace up --brokers 3` for a cluster of your own, "
            "`headrace lab list` for more promises."
        )
