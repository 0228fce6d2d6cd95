"""Python classes from an Avro schema: a module of dataclasses and enums, typed and documented.

A record becomes a frozen dataclass that carries its schema, so that `Avro(TheClass)` reads and
writes it; an enum becomes a StrEnum. Names are kept; one that Python cannot have gets another,
and the field remembers the Avro name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from headrace.serde import source
from headrace.serde.defaults import check_defaults, default_value, fits
from headrace.serde.naming import ALWAYS_RESERVED, class_names, field_names, member_names
from headrace.serde.schemas import NAMED, RECORDS, AvroSchema, kind, logical, outermost_records
from headrace.serde.source import Group, Source

MARK = "Written by `headrace schema classes`"

_PRIMITIVE_TYPES = {
    "null": "None",
    "boolean": "bool",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "bytes": "bytes",
    "string": "str",
}
_LOGICAL_TYPES = {
    "int-date": "date",
    "int-time-millis": "time",
    "long-time-micros": "time",
    "long-timestamp-millis": "datetime",
    "long-timestamp-micros": "datetime",
    "long-local-timestamp-millis": "datetime",
    "long-local-timestamp-micros": "datetime",
    "bytes-decimal": "Decimal",
    "fixed-decimal": "Decimal",
    "string-uuid": "UUID",
}
_HOMES = {
    "dataclass": "dataclasses",
    "field": "dataclasses",
    "UTC": "datetime",
    "date": "datetime",
    "datetime": "datetime",
    "time": "datetime",
    "Decimal": "decimal",
    "StrEnum": "enum",
    "ClassVar": "typing",
    "UUID": "uuid",
}


@dataclass(frozen=True)
class Module:
    """A module's source, and the classes in it."""

    source: str
    classes: tuple[str, ...]


def write_classes(schema: AvroSchema) -> Module:
    """The module for a schema."""
    check_defaults(schema)
    return _Writer(schema).module()


class _Writer:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._types = [each for each in schema.types() if kind(each) in RECORDS | {"enum"}]
        reserved = ALWAYS_RESERVED | set(self._logical_names())
        self._names = class_names([each["name"] for each in self._types], reserved)
        self._roots = dict(outermost_records(schema))
        self._members = {
            each["name"]: member_names(each["symbols"])
            for each in self._types
            if kind(each) == "enum"
        }
        self._attributes = {
            each["name"]: field_names(
                [field["name"] for field in each["fields"]],
                reserved | set(self._names.values()),
            )
            for each in self._types
            if kind(each) in RECORDS
        }
        self._used: set[str] = set()
        self._defined: set[str] = set()

    def module(self) -> Module:
        written = []
        for each in self._types:
            written += ["", "", *(self._enum(each) if kind(each) == "enum" else self._record(each))]
            self._defined.add(self._names[each["name"]])
        about = [
            f'"""Classes for the Avro schema {self._schema.name}.',
            "",
            f"{MARK}; change the schema, not this file.",
            '"""',
            "",
        ]
        body = [*self._imports(), *written]
        exempt = self._exemptions([*about, *body])
        return Module(
            "\n".join([*about, *exempt, *body]).rstrip() + "\n", tuple(self._names.values())
        )

    def _logical_names(self) -> Iterator[str]:
        """What the schema's logical types need from other modules."""
        for each in self._schema.types():
            if known := logical(each):
                yield from (_LOGICAL_TYPES[known], "UTC")

    def _imports(self) -> list[str]:
        by_home: dict[str, list[str]] = {}
        for name in sorted(self._used, key=_import_order):
            by_home.setdefault(_HOMES[name], []).append(name)
        return [f"from {home} import {', '.join(by_home[home])}" for home in sorted(by_home)]

    def _exemptions(self, lines: list[str]) -> list[str]:
        """Names are the schema's, whatever a linter thinks of them."""
        inner = {*_values(self._members), *_values(self._attributes)}
        codes = [
            code
            for code, needed in (
                ("E501", any(len(line) > source.WIDTH for line in lines)),
                ("N801", any(map(_is_no_class_name, self._names.values()))),
                ("N815", any(map(_is_mixed_case, inner))),
            )
            if needed
        ]
        # RUF100, because not everyone's linter looks for these.
        return [f"# ruff: noqa: {', '.join(codes)}, RUF100", ""] if codes else []

    # --- classes ---

    def _enum(self, schema: dict[str, Any]) -> list[str]:
        self._used.add("StrEnum")
        name = self._names[schema["name"]]
        members = self._members[schema["name"]]
        return [
            f"class {name}(StrEnum):",
            *_about(schema, "enum"),
            *(["", *self._avro_name(schema, "")] if schema["name"] != name else []),
            "",
            *(f"    {member} = {source.quoted(symbol)}" for symbol, member in members.items()),
        ]

    def _record(self, schema: dict[str, Any]) -> list[str]:
        self._used.add("dataclass")
        name = self._names[schema["name"]]
        fixed = []
        if schema["name"] in self._roots:
            self._used.add("ClassVar")
            text = source.text(self._roots[schema["name"]])
            fixed += source.lines("__avro_schema__: ClassVar[str] = ", text)
        if schema["name"] != name:
            self._used.add("ClassVar")
            fixed += self._avro_name(schema, ": ClassVar[str]")
        return [
            "@dataclass(frozen=True, slots=True, kw_only=True)",
            f"class {name}:",
            *_about(schema, "record"),
            *(["", *fixed] if fixed else []),
            *([""] if schema["fields"] else []),
            *(line for field in schema["fields"] for line in self._field(schema, field)),
        ]

    def _avro_name(self, schema: dict[str, Any], annotation: str) -> list[str]:
        return source.lines(f"__avro_name__{annotation} = ", source.text(schema["name"]))

    def _field(self, record: dict[str, Any], field: dict[str, Any]) -> list[str]:
        name = self._attributes[record["name"]][field["name"]]
        annotation = self._type(field["type"])
        prefix = f"{name}: {annotation}"
        about = source.comment(field["doc"]) if field.get("doc") else []
        settings: list[Source] = []
        if "default" in field:
            default = self._literal(field["type"], field["default"])
            if _is_constant(default) and name == field["name"]:
                return [*about, *source.lines(f"{prefix} = ", default)]
            settings.append(_default_argument(default))
        if name != field["name"]:
            settings.append(f'metadata={{"avro": {source.quoted(field["name"])}}}')
        if not settings:
            return [*about, f"    {prefix}"]
        self._used.add("field")
        return [*about, *source.lines(f"{prefix} = ", Group("field(", tuple(settings), ")"))]

    # --- types ---

    def _type(self, schema: Any) -> str:
        before = self._type_name(schema)
        mentioned = {name for name in self._names.values() if name in _words(before)}
        # A class that comes later, or this one itself, can only be named in quotes.
        return before if mentioned <= self._defined else f'"{before}"'

    def _type_name(self, schema: Any) -> str:
        schema = self._schema.definition(schema)
        found = kind(schema)
        if found == "union":
            branches = schema if isinstance(schema, list) else schema["type"]
            names = dict.fromkeys(self._type_name(branch) for branch in branches)
            return " | ".join(sorted(names, key=lambda name: name == "None"))
        if known := logical(schema):
            self._used.add(_LOGICAL_TYPES[known])
            return _LOGICAL_TYPES[known]
        if found in NAMED:
            return self._names.get(schema["name"], "bytes")
        if found == "array":
            return f"list[{self._type_name(schema['items'])}]"
        if found == "map":
            return f"dict[str, {self._type_name(schema['values'])}]"
        return _PRIMITIVE_TYPES[found]

    # --- defaults ---

    def _literal(self, schema: Any, default: Any) -> Source:
        schema = self._schema.definition(schema)
        found = kind(schema)
        if found == "union":
            branches = schema if isinstance(schema, list) else schema["type"]
            fitting = (each for each in branches if fits(self._schema, each, default))
            return self._literal(next(fitting), default)
        if found in RECORDS:
            return self._record_literal(schema, default)
        if found == "enum":
            return f"{self._names[schema['name']]}.{self._members[schema['name']][default]}"
        if found == "array":
            items = (self._literal(schema["items"], item) for item in default)
            return Group("[", tuple(items), "]")
        if found == "map":
            items = (
                _prefixed(f"{source.quoted(key)}: ", self._literal(schema["values"], each))
                for key, each in default.items()
            )
            return Group("{", tuple(items), "}")
        return self._atom(default_value(self._schema, schema, default))

    def _record_literal(self, schema: dict[str, Any], default: dict[str, Any]) -> Source:
        names = self._attributes[schema["name"]]
        given = (
            _prefixed(
                f"{names[field['name']]}=",
                self._literal(field["type"], default.get(field["name"], field.get("default"))),
            )
            for field in schema["fields"]
        )
        return Group(f"{self._names[schema['name']]}(", tuple(given), ")")

    def _atom(self, value: Any) -> Source:
        if isinstance(value, str):
            return source.text(value)
        if isinstance(value, bytes):
            return f"b{source.quoted(value.decode('latin-1'))}"
        if isinstance(value, Decimal | UUID):
            self._used.add(type(value).__name__)
            return Group(f"{type(value).__name__}(", (f'"{value}"',), ")")
        if isinstance(value, date | time):
            return self._moment(value)
        return repr(value)

    def _moment(self, value: date | time) -> Source:
        self._used.add(type(value).__name__)
        shown = repr(value).removeprefix("datetime.")
        if isinstance(value, datetime) and value.tzinfo is not None:
            self._used.add("UTC")
            shown = shown.replace("datetime.timezone.utc", "UTC")
        return Group(shown.removesuffix(")"), (), ")")


def _is_constant(literal: Source) -> bool:
    """Whether all records can share the value: text, a number, an enum's member."""
    return isinstance(literal, str) or not literal.comma


def _default_argument(literal: Source) -> Source:
    if _is_constant(literal):
        return _prefixed("default=", literal)
    if source.one_line(literal) in ("[]", "{}"):
        return f"default_factory={'list' if source.one_line(literal) == '[]' else 'dict'}"
    return _prefixed("default_factory=lambda: ", literal)


def _about(schema: Mapping[str, Any], what: str) -> list[str]:
    return source.docstring(schema.get("doc") or f"The Avro {what} {schema['name']}.")


def _prefixed(prefix: str, expression: Source) -> Source:
    if isinstance(expression, str):
        return prefix + expression
    return Group(
        prefix + expression.opening, expression.parts, expression.closing, expression.comma
    )


def _values(tables: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for table in tables.values():
        yield from table.values()


def _words(annotation: str) -> set[str]:
    for bracket in "[]|,":
        annotation = annotation.replace(bracket, " ")
    return set(annotation.split())


def _import_order(name: str) -> tuple[bool, bool, str]:
    """Constants, classes, functions: the order that import sorters want."""
    return (not name.isupper(), not name[0].isupper(), name)


def _is_no_class_name(name: str) -> bool:
    inner = name.lstrip("_")
    return not inner[:1].isupper() or "_" in inner


def _is_mixed_case(name: str) -> bool:
    inner = name.lstrip("_")
    return inner[:1].islower() and inner != inner.lower()
