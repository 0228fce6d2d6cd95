"""`demo`: the whole story in about a minute."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, coloured, console, grid, show
from headrace.cli.progress import TerminalProgress

if TYPE_CHECKING:
    from rich.text import Text

    from headrace.labs.story import Story

DEMO_CLUSTER = "demo"


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running, as `--name demo`.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Three brokers, a stream of events, a killed broker, and every event accounted for."""
    from headrace.labs.story import tell
    from headrace.local import LocalCluster

    with TerminalProgress() as progress:
        cluster = LocalCluster(3, name=DEMO_CLUSTER if keep else None, progress=progress)
        try:
            cluster.up(fresh=keep)
            story = tell(cluster, progress)
        finally:
            if not keep and cluster.folder.exists():
                progress.step("stopping the cluster")
                cluster.down(wipe=True)
    show(story.account.to_json(), output, lambda: _chapters(story))
    if output is Output.table:
        _next_steps(keep)
    if not story.account.balanced:
        raise typer.Exit(1)


def _chapters(story: "Story") -> list[Any]:
    account = story.account
    leaders = [
        (str(partition), before, after, story.per_partition.get(partition, 0), bar)
        for partition, (before, after) in enumerate(
            zip(story.leaders_before, story.leaders_after_kill, strict=False)
        )
        for bar in [_bar(story.per_partition.get(partition, 0), account.read)]
    ]
    verdict = (
        coloured("balanced", "bold green")
        if account.balanced
        else coloured("NOT BALANCED", "bold red")
    )
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
