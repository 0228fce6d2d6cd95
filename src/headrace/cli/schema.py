"""`schema`: list, get, register, check, classes."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import Output, OutputOption, coloured, grid, hint, show
from headrace.cli.session import session

if TYPE_CHECKING:
    from headrace.serde import Registry, Verdict

app = typer.Typer(
    help="Schemas in the registry: list, get, register, check; classes from a file.",
    no_args_is_help=True,
)

SubjectArgument = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The subject, such as clicks-value.")
]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="An Avro schema (.avsc).")]


@app.command("list")
def list_(output: OutputOption = Output.table) -> None:
    """List subjects with their versions."""
    from headrace.services.schemas import list_subjects

    found = list_subjects(_registry())
    rows = [(each.subject, ", ".join(map(str, each.versions))) for each in found]
    show([asdict(each) for each in found], output, lambda: grid(("subject", "versions"), rows))


@app.command("get")
def get(
    subject: SubjectArgument,
    version: Annotated[int | None, typer.Option(help="Which one; the newest if left.")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show a schema."""
    import json

    from headrace.services.schemas import get_schema, schema_to_json

    document = schema_to_json(get_schema(_registry(), subject, version))

    def drawn() -> list[object]:
        schema = document["schema"]
        body = schema if isinstance(schema, str) else json.dumps(schema, indent=2)
        about = f"{subject} version {document['version']}, id {document['id']}, {document['type']}"
        return [coloured(about, "bold"), coloured(body, "")]

    show(document, output, drawn)


@app.command("register")
def register(
    subject: SubjectArgument, file: FileArgument, output: OutputOption = Output.table
) -> None:
    """Make a schema the subject's newest version; again is harmless."""
    from headrace.services.schemas import register_schema, schema_to_json

    document = schema_to_json(register_schema(_registry(), subject, file))
    shown = f"{subject} version {document['version']}, id {document['id']}"
    show(document, output, lambda: coloured(shown, ""))


@app.command("check")
def check(
    subject: SubjectArgument, file: FileArgument, output: OutputOption = Output.table
) -> None:
    """Ask whether the subject could take a schema; exit 1, with reasons, if it could not."""
    from headrace.services.schemas import check_schema

    verdict = check_schema(_registry(), subject, file)

    show(asdict(verdict), output, lambda: coloured(_shown(verdict), ""))
    if not verdict.compatible:
        hint("give new fields a default and keep the types of old ones, or use a new subject")
        raise typer.Exit(1)


@app.command("classes")
def classes(
    file: FileArgument,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the module there; else to stdout.")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Write a typed Python module for a schema: dataclasses and enums, for hr.Avro(TheClass)."""
    from headrace.services.schemas import classes_from

    module = classes_from(file, out)
    if out is None and output is Output.table:
        sys.stdout.write(module.source)
        return
    document = {
        "file": str(file),
        "out": None if out is None else str(out),
        "classes": module.classes,
        "source": module.source if out is None else None,
    }
    show(document, output, lambda: coloured(f"{out}: {', '.join(module.classes)}", ""))


def _shown(verdict: "Verdict") -> str:
    if verdict.new:
        return f"compatible: {verdict.subject} has no schema yet"
    if verdict.compatible:
        return f"compatible with {verdict.subject}"
    reasons = verdict.reasons or ("the registry gives no reasons",)
    return "\n  ".join([f"not compatible with {verdict.subject}:", *reasons])


def _registry() -> "Registry":
    from headrace.clients.registries import registry_of

    return registry_of(session.connection())
