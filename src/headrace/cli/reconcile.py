"""`reconcile`: whether every row is accounted for."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Output, OutputOption, coloured, grid, hint, show
from headrace.cli.progress import TerminalProgress
from headrace.cli.session import session

if TYPE_CHECKING:
    from headrace.services.reconcile import Account, Finding


def reconcile(
    topic: Annotated[str, typer.Option(help="The topic; of a pipeline of several, any of them.")],
    lake: Annotated[str, typer.Option(metavar="DIR", help="The folder of the tables.")],
    pipeline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The pipeline, if several have read the topic."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compare record by record, and name what is missing.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Prove that every row is accounted for, from files to tables; exit 1 if one is not."""
    from headrace.services.reconcile_sources import ReconcileOptions
    from headrace.services.reconcile_sources import reconcile as run

    options = ReconcileOptions(topic, lake, pipeline, full)
    with TerminalProgress() as progress:
        account = run(options, session.connection(), progress)
    show(account.to_json(), output, lambda: _drawn(account))
    if output is Output.table:
        for text in dict.fromkeys(finding.hint for finding in account.findings):
            hint(text)
    if not account.balanced:
        raise typer.Exit(1)


def _drawn(account: "Account") -> list[Any]:
    parts: list[Any] = [grid(("", ">rows"), _sums(account))]
    if account.findings:
        marks = {True: coloured("PROBLEM", "bold red"), False: coloured("note", "yellow")}
        rows = [(marks[f.fails], f.count, f.what, _where(f)) for f in account.findings]
        parts.append(grid(("", ">count", "what", "where"), rows))
    verdict = ("balanced", "green") if account.balanced else ("not balanced", "bold red")
    return [*parts, coloured(*verdict)]


def _where(finding: "Finding") -> str:
    if finding.first is None:
        return finding.where
    if finding.first == finding.last:
        return f"{finding.where} at {finding.first}"
    return f"{finding.where} from {finding.first} to {finding.last}"


def _sums(account: "Account") -> list[tuple[str, int | None]]:
    of_files: list[tuple[str, int | None]] = [
        ("rows in files", account.file_rows),
        ("  dead letters of ingest", account.file_dead_rows),
    ]
    return [
        *(of_files if account.file_rows is not None else []),
        (f"records in {', '.join(account.topics)}", account.kafka_rows),
        ("  rows in the table", account.table_rows),
        ("  dead letters of the pipeline", account.pipeline_dead_rows),
        ("  duplicates removed", account.duplicates),
        ("  not read yet", account.unread),
        ("missing", account.missing),
        *((f"late for {name}", rows) for name, rows in account.late.items()),
    ]
