"""`up`, `status`, `down`, `logs`, `broker`: the cluster on this machine."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, coloured, grid, show
from headrace.cli.progress import TerminalProgress

if TYPE_CHECKING:
    from rich.text import Text

    from headrace.local import ClusterStatus, LocalCluster, ServerStatus

NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="Which local cluster.")]
DEFAULT = "default"


class BrokerVerb(StrEnum):
    """What can be done to one broker."""

    stop = "stop"
    kill = "kill"
    start = "start"
    pause = "pause"
    resume = "resume"


def up(
    brokers: Annotated[
        int | None, typer.Option(help="How many brokers, 1 to 9. A new cluster has 1 by default.")
    ] = None,
    registry: Annotated[
        bool, typer.Option("--registry", help="With a schema registry (Apicurio).")
    ] = False,
    connect: Annotated[
        bool, typer.Option("--connect", help="With a Kafka Connect worker.")
    ] = False,
    name: NameOption = DEFAULT,
    port: Annotated[
        int | None,
        typer.Option(help="First broker's port; the others follow. Else 9092 if free, or any."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Give up the cluster's data and begin anew.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Start a local cluster and return once it serves. Again is harmless."""
    from headrace.local import LocalCluster

    with TerminalProgress() as progress:
        cluster = LocalCluster(
            brokers, name=name, registry=registry, connect=connect, port=port, progress=progress
        )
        status = cluster.up(fresh=fresh)
    _show_status(status, output)


def status(name: NameOption = DEFAULT, output: OutputOption = Output.table) -> None:
    """Show the local cluster's servers."""
    _show_status(_existing(name).status(), output)


def down(
    name: NameOption = DEFAULT,
    wipe: Annotated[bool, typer.Option("--wipe", help="Remove the cluster's data too.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Stop the local cluster in order, within ten seconds."""
    _existing(name).down(wipe=wipe)
    text = f"cluster {name!r} is stopped" + (", its data is removed" if wipe else "")
    show({"name": name, "stopped": True, "wiped": wipe}, output, lambda: text)


def logs(
    server: Annotated[
        str, typer.Argument(metavar="[ID]", help="A broker's id, `registry` or `connect`.")
    ] = "1",
    name: NameOption = DEFAULT,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they come.")] = False,
) -> None:
    """Show what a server logged."""
    from headrace.local.logs import tail_log

    cluster = _existing(name)
    for line in tail_log(cluster.log_of(server), lines, follow=follow):
        typer.echo(line)


def broker(
    verb: Annotated[
        BrokerVerb, typer.Argument(help="Orderly stop, SIGKILL, start, SIGSTOP, SIGCONT.")
    ],
    broker_id: Annotated[int, typer.Argument(metavar="ID", help="The broker's id.")],
    name: NameOption = DEFAULT,
    output: OutputOption = Output.table,
) -> None:
    """Stop, kill, start, pause or resume one broker."""
    with TerminalProgress() as progress:
        cluster = _existing(name, progress)
        action: Callable[[int], Any] = getattr(cluster, verb.value)
        action(broker_id)
    _show_status(cluster.status(), output)


def register(app: typer.Typer) -> None:
    """These commands stand at the top level."""
    for command in (up, status, down, logs, broker):
        app.command(command.__name__)(command)


def _existing(name: str, progress: TerminalProgress | None = None) -> "LocalCluster":
    from headrace.local import LocalCluster

    return LocalCluster(name=name, progress=progress)


def _show_status(status: "ClusterStatus", output: Output) -> None:
    def table() -> list[Any]:
        rows: list[Any] = [
            (
                f"{b.node}{' (controller)' if b.controller else ''}",
                f"127.0.0.1:{b.port}",
                _state(b),
                str(b.pid or "-"),
                _megabytes(b.memory),
            )
            for b in status.brokers
        ]
        rows += [
            (s.node, address or "", _state(s), str(s.pid or "-"), _megabytes(s.memory))
            for s in status.services
            for address in [status.registry if s.node == "registry" else status.connect]
        ]
        columns = ("server", "address", "state", "pid", ">memory")
        title = f"cluster {status.name!r}, Kafka {status.kafka_version}"
        return [grid(columns, rows, title), f"bootstrap: {status.bootstrap}"]

    show(status.to_json(), output, table)


def _state(server: "ServerStatus") -> "Text":
    styles = {"running": "green", "paused": "yellow", "stopped": "bold red"}
    return coloured(server.state.value, styles[server.state.value])


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.0f} MB"
