"""`topic`: create, list, describe, alter, delete."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, grid, hint, show
from headrace.cli.session import session
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.services.topics import TopicDetail

app = typer.Typer(help="Topics: create, list, describe, alter, delete.", no_args_is_help=True)

TopicArgument = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="K=V", help="A setting; may be given again."),
]


def parse_settings(settings: list[str] | None) -> dict[str, str]:
    """`-c name=value`, as often as given."""
    parsed = {}
    for setting in settings or ():
        name, found, value = setting.partition("=")
        if not found or not name:
            raise BadInput(f"{setting!r} is no setting", hint="write -c retention.ms=60000")
        parsed[name] = value
    return parsed


@app.command("create")
def create(
    name: TopicArgument,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="How many.")] = 1,
    replication: Annotated[
        int | None,
        typer.Option("--replication", "-r", help="Copies of each; the cluster's default if left."),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Create a topic and wait until it can be used."""
    from headrace.services.topics import check_topic_name, create_topic

    settings = parse_settings(config)
    check_topic_name(name)
    _show_detail(create_topic(session.admin(), name, partitions, replication, settings), output)


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics too.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """List topics."""
    from headrace.services.topics import list_topics

    found = list_topics(session.admin(), internal=internal)
    columns = ("topic", ">partitions", ">replication", ">under-replicated")
    rows = [(t.name, t.partitions, t.replication, t.under_replicated) for t in found]
    show([asdict(topic) for topic in found], output, lambda: grid(columns, rows))


@app.command("describe")
def describe(name: TopicArgument, output: OutputOption = Output.table) -> None:
    """Show a topic's partitions, offsets and settings."""
    from headrace.services.topics import describe_topic

    _show_detail(describe_topic(session.admin(), name), output)


@app.command("alter")
def alter(
    name: TopicArgument,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new, larger number.")
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Add partitions, or change settings (`-c name=` takes one back to its default)."""
    from headrace.services.topics import alter_topic

    detail = alter_topic(session.admin(), name, partitions, parse_settings(config))
    _show_detail(detail, output)


@app.command("delete")
def delete(
    name: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Really delete it.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Delete a topic with all its records."""
    from headrace.services.topics import delete_topic, describe_topic

    admin = session.admin()
    if not yes:
        detail = describe_topic(admin, name)
        records = sum((p.latest or 0) - (p.earliest or 0) for p in detail.partitions)
        raise BadInput(
            f"this would delete topic {name} with {len(detail.partitions)} partitions "
            f"and about {records:,} records",
            hint="add --yes to do it",
        )
    delete_topic(admin, name)
    show({"name": name, "deleted": True}, output, lambda: f"topic {name} is deleted")


def _show_detail(detail: "TopicDetail", output: Output) -> None:
    def table() -> list[Any]:
        rows = [
            (
                str(p.id),
                "none" if p.leader is None else str(p.leader),
                ", ".join(map(str, p.replicas)),
                ", ".join(map(str, p.isr)),
                p.earliest,
                p.latest,
            )
            for p in detail.partitions
        ]
        columns = ("partition", "leader", "replicas", "in sync", ">earliest", ">latest")
        settings = ", ".join(f"{name}={detail.configs[name]}" for name in detail.overrides)
        return [grid(columns, rows, f"topic {detail.name}"), f"settings: {settings or 'defaults'}"]

    show(detail.to_json(), output, table)
    if output is Output.table and any(p.leader is None for p in detail.partitions):
        hint("a partition without a leader has all its copies on dead brokers: `headrace status`")
