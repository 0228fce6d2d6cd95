"""`headrace`: the commands, and one place where errors become exit statuses."""

import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from headrace.cli import (
    bench,
    cluster,
    consume,
    demo,
    doctor,
    generate,
    group,
    ingest,
    lab,
    lake,
    produce,
    reconcile,
    replay,
    schema,
    sql,
    stream,
    topic,
)
from headrace.cli import run as running
from headrace.cli.session import session
from headrace.errors import HeadraceError
from headrace.observe.signals import follows_interrupt

INTERRUPTED, TERMINATED = 130, 143

app = typer.Typer(
    name="headrace",
    help="Event streams on Apache Kafka: a real cluster, clients, and labs that prove promises.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cluster.register(app)
app.command("doctor")(doctor.doctor)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("run")(running.run)
app.command("ingest")(ingest.ingest)
app.command("stream")(stream.stream)
app.command("sql")(sql.sql)
app.add_typer(lake.app, name="lake")
app.command("reconcile")(reconcile.reconcile)
app.command("replay")(replay.replay)
app.add_typer(schema.app, name="schema")
app.add_typer(generate.app, name="generate")
app.add_typer(lab.app, name="lab")
app.add_typer(bench.app, name="bench")
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        from headrace import __version__

        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def options(
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A profile of headrace.toml, or the name of a local cluster."
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    session.profile = profile
    session.debug = debug


def main() -> None:
    """Run the command line and exit with its status."""
    signal.signal(signal.SIGTERM, _end_as_by_ctrl_c)
    try:
        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # another signal, while `run` reported the first
        status = INTERRUPTED
    # The command has ended: a signal now would only interrupt Python's exit, with a traceback.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(TERMINATED if status == INTERRUPTED and session.terminated else status)


def _end_as_by_ctrl_c(_number: int, frame: FrameType | None) -> None:
    """SIGTERM: what a command started, it stops, as after Ctrl-C."""
    session.terminated = True
    interrupt = signal.getsignal(signal.SIGINT)
    if not callable(interrupt):  # started in the background, where Ctrl-C means nothing
        raise KeyboardInterrupt
    interrupt(signal.SIGINT, frame)


def run(arguments: list[str]) -> int:
    """One call; returns 0 done, 1 failed, 2 bad usage or input, 130 stopped by Ctrl-C."""
    session.debug = "--debug" in arguments
    try:
        status: int = app(arguments, prog_name="headrace", standalone_mode=False) or 0
        return _stopped() if status == INTERRUPTED else status  # Typer's answer to Ctrl-C
    except typer.TyperException as error:
        return _complain_of_usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return _stopped()
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):
            return 0  # the reader of our output went away (`| head`): nothing more to say
        raise
    except Exception as error:
        return _stopped(error) if follows_interrupt(error) else _complain_of_failure(error)


def _stopped(failure: Exception | None = None) -> int:
    """Report a stop. `failure` is of the cleanup: an error of Headrace's says what may be left, any
    other is a consequence of the stop, such as a call of a server that is gone already."""
    if failure is not None and session.debug:
        _print_traceback()
    if isinstance(failure, HeadraceError):
        sys.stderr.write(f"warning: while stopping: {_one_line(failure.message)}\n")
    sys.stderr.write("stopped\n")
    return INTERRUPTED


def _complain_of_failure(error: Exception) -> int:
    if isinstance(error, HeadraceError):
        return _complain(error.message, error.hint, error.exit_status)
    return _complain(  # the last resort
        f"{type(error).__name__}: {error}",
        "this is a defect in Headrace: run again with --debug and report what it prints",
        1,
    )


def _complain_of_usage(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "headrace"
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
        sys.stderr.write(f"{message}\n\n")
        message = f"{path} needs a command"
    return _complain(message, f"see `{path} --help`", 2)


def _complain(message: str, hint: str, status: int) -> int:
    if session.debug:
        _print_traceback()
    sys.stdout.flush()
    sys.stderr.write(f"error: {_one_line(message)}\n")
    if hint:
        sys.stderr.write(f"hint: {hint}\n")
    return status


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


def _one_line(text: str) -> str:
    return " ".join(text.split())
