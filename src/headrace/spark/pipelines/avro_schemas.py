"""How values of one Avro schema are read: which of its fields are wanted, and under which names.

Pure: schemas in, schemas out. Reading is Spark's `from_avro`, which takes the schema that a record
was written with and the one to read it as, and gives a row of nulls for bytes that do not fit.
So the last field of both is a mark that is put behind the bytes: only what was read whole, and has
nothing after it, ends with it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.serde.schemas import RECORDS, AvroSchema, kind, self_contained
from headrace.spark.pipelines.fields import Avro

END = "headrace_end"
END_MARK = b"\xffhr-end\xfe"
_END_FIELD = {
    "name": END,
    "type": {"type": "fixed", "name": "headrace_mark", "size": len(END_MARK)},
}


@dataclass(frozen=True)
class Layout:
    """The schemas to read with, and where declared (`found`) and other fields (`unknown`) are in
    the result: names there are ours, for Spark does not tell upper from lower case."""

    writer: str
    reader: str
    found: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def layout_of(schema: AvroSchema, value: Avro) -> Layout | str:
    """How to read records of this schema, or why they cannot be."""
    if kind(schema.parsed) not in RECORDS:
        return f"is of type {kind(schema.parsed)}, not a record"
    if schema.recursive:
        return "contains itself, which Spark cannot read"
    fields = {each["name"]: each for each in schema.parsed["fields"]}
    declared = [each.field for each in value.fields]
    found = {name: f"f{number}" for number, name in enumerate(declared) if name in fields}
    others = [name for name in fields if name not in declared]
    if others and value.drift == "freeze":
        return f"has unknown fields: {', '.join(others)}"
    unknown = {name: f"u{number}" for number, name in enumerate(others)}
    renamed = [
        {"name": ours, "aliases": [name], "type": fields[name]["type"]}
        for name, ours in (found | unknown).items()
    ]
    return Layout(
        _record(schema, [*_without_defaults(fields.values()), _END_FIELD]),
        _record(schema, [*renamed, _END_FIELD]),
        found,
        unknown,
    )


def defaults_of(schema: AvroSchema, names: Iterable[str]) -> Layout | None:
    """How to read the defaults that a schema has for some fields, if any: out of no bytes."""
    fields = {each["name"]: each for each in schema.parsed["fields"]}
    given = [name for name in names if "default" in fields.get(name, {})]
    found = {name: f"d{number}" for number, name in enumerate(given)}
    renamed = [
        {"name": ours, "type": fields[name]["type"], "default": fields[name]["default"]}
        for name, ours in found.items()
    ]
    return Layout(_record(schema, []), _record(schema, renamed), found) if found else None


def _without_defaults(fields: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A writer has none; wrong ones, which Java would refuse, do no harm then."""
    return [{"name": each["name"], "type": each["type"]} for each in fields]


def _record(schema: AvroSchema, fields: list[Any]) -> str:
    record = {"type": "record", "name": schema.name, "fields": fields}
    return json.dumps(self_contained(record, schema.named, set()))
