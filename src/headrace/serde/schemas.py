"""Avro schemas: from a file, JSON text, a dict or a class; parsed once, and safe to read with."""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from headrace.errors import BadInput, ConfigError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
RECORDS = frozenset({"record", "error"})
# Others are read as the type they stand on, as the specification asks.
LOGICAL = frozenset(
    {
        "int-date",
        "int-time-millis",
        "long-time-micros",
        "long-timestamp-millis",
        "long-timestamp-micros",
        "long-local-timestamp-millis",
        "long-local-timestamp-micros",
        "bytes-decimal",
        "fixed-decimal",
        "string-uuid",
    }
)


@dataclasses.dataclass(frozen=True)
class AvroSchema:
    """A schema as it was written (`source`), as fastavro took it in (`parsed`), and its names."""

    source: Any
    parsed: Any
    named: Mapping[str, Any]

    @cached_property
    def text(self) -> str:
        """As the registry keeps it."""
        return json.dumps(self.source, separators=(",", ":"))

    @property
    def name(self) -> str:
        """The full name of a record, enum or fixed; the type of everything else."""
        return branch_name(self.parsed)

    @cached_property
    def recursive(self) -> bool:
        """Whether a type contains itself, so that bytes decide how deep a value is."""
        return _contains_itself(self.parsed, self.named, ())

    def definition(self, schema: Any) -> Any:
        """What a name stands for; other schemas as they are."""
        return self.named.get(schema, schema) if isinstance(schema, str) else schema

    def types(self) -> Iterator[Any]:
        """Every type in the schema, each definition once, the inner ones before the outer."""
        yield from _types(self.parsed, self.named, set())


def fastavro() -> Any:
    """The library, imported when Avro is first used."""
    try:
        import fastavro
    except ImportError as error:
        raise needs_extra("Avro") from error
    return fastavro


def needs_extra(what: str) -> ConfigError:
    return ConfigError(
        f"{what} needs packages that are not installed", hint="pip install 'headrace[avro]'"
    )


def load_schema(given: Any) -> AvroSchema:
    """A schema from a class with `__avro_schema__`, a dict, a list, JSON text or a file's path."""
    if isinstance(given, AvroSchema):
        return given
    if isinstance(given, type):
        return parse_schema(_of_class(given), f"the schema of {given.__name__}")
    if isinstance(given, os.PathLike):
        return parse_schema(_of_file(Path(given)), str(given))
    if isinstance(given, str):
        return _of_text(given)
    return parse_schema(given, "this")


def parse_schema(
    source: Any, what: str = "this", named: Mapping[str, Any] | None = None
) -> AvroSchema:
    """Check a schema; `named` are types that it may use and does not define."""
    library = fastavro()
    names: dict[str, Any] = dict(named or {})
    try:
        parsed = library.parse_schema(_plain(source), names)
        schema = AvroSchema(source, parsed, names)
        for each in schema.types():
            _check(each, schema)
    except library.schema.UnknownType as error:
        raise _bad(what, f"the type {error.name} is not defined") from error
    except RecursionError as error:
        raise _bad(what, "it is nested too deeply") from error
    except (library.schema.SchemaParseException, ValueError, TypeError) as error:
        raise _bad(what, str(error)) from error
    except (KeyError, AttributeError) as error:
        raise _bad(what, f"something is missing or misplaced: {error}") from error
    return schema


def parse_text(text: str, what: str, named: Mapping[str, Any]) -> AvroSchema:
    """A schema as a registry keeps it."""
    return parse_schema(_json(text, what), what, named)


def kind(schema: Any) -> str:
    """`record`, `union`, `long`, or a name that is defined elsewhere."""
    if isinstance(schema, list):
        return "union"
    if isinstance(schema, str):
        return schema
    inner = schema["type"]
    return inner if isinstance(inner, str) else kind(inner)


def logical(schema: Any) -> str | None:
    """`long-timestamp-millis` and the like, if this is a logical type that is known here."""
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return None
    name = f"{kind(schema)}-{schema['logicalType']}"
    return name if name in LOGICAL else None


def branch_name(schema: Any) -> str:
    """How fastavro names a type where one of several is meant."""
    found = kind(schema)
    return str(schema["name"]) if found in NAMED else found


def outermost_records(schema: AvroSchema) -> Iterator[tuple[str, str]]:
    """The records that stand in no other, each with a schema of its own as text."""
    if kind(schema.parsed) in RECORDS:
        yield schema.name, schema.text
        return
    waiting = [schema.parsed]
    while waiting:
        each = schema.definition(waiting.pop(0))
        if kind(each) in RECORDS:
            whole = self_contained(each, schema.named, set())
            yield each["name"], json.dumps(whole, separators=(",", ":"))
        else:
            waiting.extend(_inner(each))


def self_contained(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Any:
    """A copy in which each name is defined where it first stands; `seen` are defined before."""
    if isinstance(schema, str):
        if schema not in named or schema in seen:
            return schema
        schema = named[schema]
    if isinstance(schema, list):
        return [self_contained(branch, named, seen) for branch in schema]
    if kind(schema) in NAMED:
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    copied = _without_marks(schema)
    for inside in ("items", "values", "type"):
        if inside in copied:
            copied[inside] = self_contained(copied[inside], named, seen)
    if "fields" in copied:
        copied["fields"] = [
            {**field, "type": self_contained(field["type"], named, seen)}
            for field in copied["fields"]
        ]
    return copied


def _of_class(cls: type) -> Any:
    schema = getattr(cls, "__avro_schema__", None)
    if schema is None:
        raise BadInput(
            f"{cls.__name__} has no __avro_schema__",
            hint="let `headrace schema classes FILE.avsc` write the class, or add its schema",
        )
    if not dataclasses.is_dataclass(cls):
        raise BadInput(f"{cls.__name__} is no dataclass", hint="decorate it with @dataclass")
    return _json(schema, f"the schema of {cls.__name__}") if isinstance(schema, str) else schema


def _of_text(text: str) -> AvroSchema:
    if text in PRIMITIVES:
        return parse_schema(text)
    if text.lstrip()[:1] in ("{", "[", '"'):
        return parse_schema(_json(text, "this text"), "this text")
    return parse_schema(_of_file(Path(text)), text)


def _of_file(path: Path) -> Any:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"the schema file {path} cannot be read: {error}",
            hint="give the path of an .avsc file, JSON text, or a dict",
            path=str(path),
        ) from error
    return _json(text, str(path))


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(what, f"not valid JSON: {error}") from error


def _plain(source: Any) -> Any:
    """A copy as JSON has it, without the marks that fastavro leaves in what it has parsed."""
    return json.loads(json.dumps(source), object_hook=_without_marks)


def _without_marks(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if not name.startswith("__")}


def _bad(what: str, reason: str) -> BadInput:
    return BadInput(
        f"{what} is no Avro schema: {reason}", hint="correct the schema, then try again"
    )


def _check(schema: Any, whole: AvroSchema) -> None:
    """What fastavro lets pass, and readers would suffer from."""
    if kind(schema) in RECORDS:
        names = [field["name"] for field in schema["fields"]]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"{schema['name']} has the field {min(twice)} more than once")
    if kind(schema) == "union":
        branches = [branch_name(branch) for branch in schema]
        if doubled := {name for name in branches if branches.count(name) > 1}:
            raise ValueError(f"a union has {min(doubled)} more than once")
        if "union" in branches:
            raise ValueError("a union stands directly in a union")
    if kind(schema) == "array" and _takes_no_bytes(schema["items"], whole, ()):
        # Six bytes could claim a billion items, and the reader would make them all.
        raise ValueError("an array's items take no bytes")


def _takes_no_bytes(schema: Any, whole: AvroSchema, above: tuple[str, ...]) -> bool:
    schema = whole.definition(schema)
    found = kind(schema)
    if found == "fixed":
        return bool(schema["size"] == 0)
    if found in RECORDS:
        if schema["name"] in above:
            return True
        inside = (*above, schema["name"])
        return all(_takes_no_bytes(field["type"], whole, inside) for field in schema["fields"])
    return found == "null"


def _inner(schema: Any) -> list[Any]:
    """The types directly inside a type."""
    found = kind(schema)
    if found == "union":
        return list(schema) if isinstance(schema, list) else _inner(schema["type"])
    if found in RECORDS:
        return [field["type"] for field in schema["fields"]]
    if found == "array":
        return [schema["items"]]
    return [schema["values"]] if found == "map" else []


def _types(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Iterator[Any]:
    if isinstance(schema, str):
        if schema in PRIMITIVES or schema in seen:
            return
        schema = named[schema]
    if kind(schema) in NAMED:
        if schema["name"] in seen:
            return
        seen.add(schema["name"])
    for inner in _inner(schema):
        yield from _types(inner, named, seen)
    yield schema


def _contains_itself(schema: Any, named: Mapping[str, Any], above: tuple[str, ...]) -> bool:
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    if kind(schema) in NAMED:
        if schema["name"] in above:
            return True
        above = (*above, schema["name"])
    return any(_contains_itself(inner, named, above) for inner in _inner(schema))
