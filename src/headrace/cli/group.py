"""`group`: list, describe, reset, delete."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, grid, hint, show
from headrace.cli.session import session
from headrace.errors import BadInput

app = typer.Typer(help="Consumer groups: list, describe, reset, delete.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(metavar="NAME", help="The group.")]


@app.command("list")
def list_(output: OutputOption = Output.table) -> None:
    """List groups."""
    from headrace.services.groups import list_groups

    found = list_groups(session.admin())
    rows = [(g.name, g.state, g.protocol, g.members) for g in found]
    columns = ("group", "state", "protocol", ">members")
    show([asdict(group) for group in found], output, lambda: grid(columns, rows))


@app.command("describe")
def describe(name: GroupArgument, output: OutputOption = Output.table) -> None:
    """Show a group's members, offsets and lag."""
    from headrace.services.groups import describe_group

    detail = describe_group(session.admin(), name)

    def table() -> list[Any]:
        members = [
            (m.client_id, m.host, ", ".join(map(str, m.partitions)) or "none", m.id)
            for m in detail.members
        ]
        offsets = [(o.topic, str(o.partition), o.committed, o.end, o.lag) for o in detail.offsets]
        return [
            f"group {detail.name}: {detail.state} ({detail.protocol} protocol)",
            grid(("client", "host", "partitions", "member id"), members, "members"),
            grid(("topic", "partition", ">committed", ">end", ">lag"), offsets, "offsets"),
        ]

    show(detail.to_json(), output, table)


@app.command("reset")
def reset(
    name: GroupArgument,
    topic: Annotated[str, typer.Option("--topic", help="The topic whose offsets move.")],
    to: Annotated[
        str | None,
        typer.Option(metavar="POSITION", help="earliest, latest, a time, or an offset."),
    ] = None,
    shift: Annotated[
        int | None, typer.Option(metavar="N", help="So many records on, or back if negative.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without, only show what would change.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Move a group's offsets. The group must have no members."""
    from headrace.model import parse_position
    from headrace.services.groups import execute_reset, plan_reset

    position = None if to is None else parse_position(to)
    admin = session.admin()
    changes = plan_reset(admin, name, topic, position, shift)
    if execute:
        execute_reset(admin, name, changes)
    document = {
        "group": name,
        "changes": [change.to_json() for change in changes],
        "executed": execute,
    }
    rows = [(c.topic, str(c.partition), c.before, c.after) for c in changes]
    title = f"group {name}: {'moved' if execute else 'would move'}"
    show(document, output, lambda: grid(("topic", "partition", ">from", ">to"), rows, title))
    if not execute:
        hint("nothing was changed; add --execute to do it")


@app.command("delete")
def delete(
    name: GroupArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Really delete it.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Delete a group with its committed offsets."""
    from headrace.services.groups import delete_group, describe_group

    admin = session.admin()
    if not yes:
        detail = describe_group(admin, name)
        raise BadInput(
            f"this would delete group {name} with offsets in {len(detail.offsets)} partitions",
            hint="add --yes to do it",
        )
    delete_group(admin, name)
    show({"name": name, "deleted": True}, output, lambda: f"group {name} is deleted")
