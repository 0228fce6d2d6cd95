"""`lab`: promises acted out on a live cluster."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, coloured, console, grid, show
from headrace.cli.progress import TerminalProgress
from headrace.cli.session import session
from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.labs import LabResult

app = typer.Typer(help="Promises, acted out on a live cluster.", no_args_is_help=True)


@app.command("list")
def list_(output: OutputOption = Output.table) -> None:
    """List the labs and their promises."""
    from headrace.labs import find_labs

    labs = find_labs()
    document = [{"name": lab.name, "promise": lab.promise, "brokers": lab.brokers} for lab in labs]
    rows = [(lab.name, lab.promise) for lab in labs]
    show(document, output, lambda: grid(("lab", "promise"), rows))


@app.command("run")
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Labs.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every lab.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Run labs on a cluster of their own, or on the one given; exit 1 if a promise broke."""
    from headrace.labs import find_labs, get_lab, run_labs

    if bool(names) == all_:
        raise BadInput("give names of labs, or --all", hint="see `headrace lab list`")
    labs = find_labs() if all_ else [get_lab(name) for name in names or ()]
    given = local = None
    if session.profile is not None or os.environ.get("HEADRACE_BOOTSTRAP"):
        given, local = session.connection(), session.local_cluster()
    on_result = _show_result if output is Output.table else lambda _result: None
    with TerminalProgress() as progress:
        results = run_labs(labs, progress, given=given, local=local, on_result=on_result)
    show([result.to_json() for result in results], output, lambda: _summary(results))
    if not all(result.held for result in results):
        raise typer.Exit(1)


def _summary(results: list["LabResult"]) -> Any:
    outcomes = {True: coloured("held", "green"), False: coloured("BROKEN", "bold red")}
    rows = [(r.name, outcomes[r.held], r.seconds, r.promise) for r in results]
    return grid(("lab", "outcome", ">seconds", "promise"), rows)


def _show_result(result: "LabResult") -> None:
    out = console()
    out.rule(f"[bold]{result.name}", align="left")
    out.print(f"[italic]{result.promise}")
    plain = [(k, _short(v)) for k, v in result.facts.items() if not _is_table(v)]
    if plain:
        out.print(grid(("fact", "value"), plain))
    for name, value in result.facts.items():
        if _is_table(value):
            out.print(grid(list(value[0]), [list(row.values()) for row in value], name))
    for check in result.checks:
        out.print(f"  [green]✓[/] {check.claim}" if check.held else f"  [red]✗ {check.claim}")
    if result.error:
        out.print(f"  [red]✗ {result.error}")
    out.print()


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _short(value: Any) -> Any:
    return "\n".join(map(str, value)) if isinstance(value, list) else value
