"""`doctor`: what this machine has and lacks."""

from dataclasses import asdict

import typer

from headrace.cli.output import Output, OutputOption, coloured, grid, show
from headrace.cli.session import session


def doctor(output: OutputOption = Output.table) -> None:
    """Look at Java, jars, ports, versions and the connection; exit 1 if something is wrong."""
    from headrace.services.doctor import examine

    findings = examine(session.profile)
    marks = {True: coloured("ok", "green"), False: coloured("PROBLEM", "bold red")}
    rows = [(f.check, marks[f.ok], f.detail, f.hint) for f in findings]
    document = {"findings": [asdict(finding) for finding in findings]}
    show(document, output, lambda: grid(("check", "", "detail", "next step"), rows))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
