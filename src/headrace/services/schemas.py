"""Schemas: what the registry has, what it would take, and classes from a file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import BadInput
from headrace.serde import Registry, StoredSchema, Verdict
from headrace.serde.classes import MARK, Module, write_classes
from headrace.serde.schemas import load_schema


@dataclass(frozen=True)
class SubjectSummary:
    """One line of `schema list`."""

    subject: str
    versions: tuple[int, ...]


def list_subjects(registry: Registry) -> list[SubjectSummary]:
    return [SubjectSummary(each, tuple(registry.versions(each))) for each in registry.subjects()]


def get_schema(registry: Registry, subject: str, version: int | None) -> StoredSchema:
    if version is not None and version < 1:
        raise BadInput(f"there is no version {version}", hint="versions begin with 1")
    return registry.get(subject, version)


def register_schema(registry: Registry, subject: str, file: Path) -> StoredSchema:
    return registry.register(subject, load_schema(file))


def check_schema(registry: Registry, subject: str, file: Path) -> Verdict:
    return registry.check(subject, load_schema(file))


def schema_to_json(stored: StoredSchema) -> dict[str, Any]:
    """As `schema get` prints it; a schema that is no JSON (Protobuf) stays text."""
    try:
        schema = json.loads(stored.text)
    except ValueError:
        schema = stored.text
    return {
        "subject": stored.subject,
        "version": stored.version,
        "id": stored.id,
        "type": stored.type,
        "schema": schema,
    }


def classes_from(file: Path, out: Path | None) -> Module:
    """The module of classes for a schema file, written to `out` if that is given."""
    module = write_classes(load_schema(file))
    if not module.classes:
        raise BadInput(f"{file} has neither a record nor an enum", hint="no class is needed for it")
    if out is not None:
        _write(out, module.source)
    return module


def _write(out: Path, text: str) -> None:
    try:
        if out.exists() and MARK not in out.read_text("utf-8", errors="replace")[:1000]:
            raise BadInput(
                f"{out} was not written by this command",
                hint="move it away, or choose another file",
            )
        out.write_text(text, "utf-8")
    except OSError as error:
        raise BadInput(
            f"{out} cannot be written: {error}", hint="check the path and its permissions"
        ) from error
