"""Avro schemas with values that fit them, for property tests; and classes made from schemas."""

import importlib.util
import itertools
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from headrace.serde.classes import write_classes
from headrace.serde.schemas import load_schema

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(),
    "string": st.text(),
}
_MOMENTS = st.datetimes(timezones=st.just(UTC))
_LOGICAL: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("int", "date"): st.dates(),
    ("int", "time-millis"): st.times().map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
    ),
    ("long", "time-micros"): st.times(),
    ("long", "timestamp-millis"): _MOMENTS.map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
    ),
    ("long", "timestamp-micros"): _MOMENTS,
    ("long", "local-timestamp-micros"): st.datetimes(),
    ("string", "uuid"): st.uuids(),
}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
_DECIMALS = st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3))
_NAMES = st.sampled_from(
    ["a", "b", "value", "class", "from", "str", "field", "time", "date", "None_", "aB", "_x", "__y"]
)
_SYMBOLS = st.sampled_from(["A", "B", "title", "name", "mro", "class", "_z_", "None", "value"])


@st.composite
def schemas_with_values(draw: st.DrawFn, top: str = "any") -> tuple[Any, Any]:
    """A schema, and a value of it; with `top="record"` a record."""
    numbers = itertools.count()
    schema, values = draw(_records(2, numbers) if top == "record" else _types(3, numbers))
    return schema, draw(values)


def _leaves(numbers: Any) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.sampled_from(sorted(_PRIMITIVES)).map(lambda name: (name, _PRIMITIVES[name])),
        st.sampled_from(sorted(_LOGICAL)).map(
            lambda key: ({"type": key[0], "logicalType": key[1]}, _LOGICAL[key])
        ),
        st.just((_DECIMAL, _DECIMALS)),
        _enums(numbers),
        st.integers(1, 4).map(
            lambda size: (
                {"type": "fixed", "name": f"n.F{next(numbers)}", "size": size},
                st.binary(min_size=size, max_size=size),
            )
        ),
    )


def _types(depth: int, numbers: Any) -> st.SearchStrategy[Any]:
    if depth == 0:
        return _leaves(numbers)
    inner = _types(depth - 1, numbers)
    wide = inner.filter(lambda pair: pair[0] != "null" and not _is_empty(pair[0]))
    return st.one_of(
        _leaves(numbers),
        wide.map(lambda pair: ({"type": "array", "items": pair[0]}, st.lists(pair[1], max_size=4))),
        inner.map(
            lambda pair: (
                {"type": "map", "values": pair[0]},
                st.dictionaries(st.text(max_size=5), pair[1], max_size=4),
            )
        ),
        _unions(depth, numbers),
        _records(depth, numbers),
    )


@st.composite
def _enums(draw: st.DrawFn, numbers: Any) -> tuple[Any, Any]:
    symbols = draw(st.lists(_SYMBOLS, min_size=1, max_size=4, unique=True))
    schema = {"type": "enum", "name": f"n.E{next(numbers)}", "symbols": symbols}
    return schema, st.sampled_from(symbols)


@st.composite
def _records(draw: st.DrawFn, depth: int, numbers: Any) -> tuple[Any, Any]:
    names = draw(st.lists(_NAMES, max_size=5, unique=True))
    name = f"n.R{next(numbers)}"
    fields = {each: draw(_types(depth - 1, numbers)) for each in names}
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": fields[each][0]} for each in names],
    }
    return schema, st.fixed_dictionaries({each: fields[each][1] for each in names})


@st.composite
def _unions(draw: st.DrawFn, depth: int, numbers: Any) -> tuple[Any, Any]:
    branches = draw(st.lists(_types(depth - 1, numbers), min_size=1, max_size=4))
    kept: dict[str, tuple[Any, Any]] = {}
    for schema, values in branches:
        kind = schema if isinstance(schema, str) else "union"
        if isinstance(schema, dict):
            kind = schema.get("name", schema["type"])
        if kind != "union":
            kept.setdefault(kind, (schema, values))
    if not kept:
        kept["null"] = ("null", st.none())
    return [schema for schema, _ in kept.values()], st.one_of(
        *(values for _, values in kept.values())
    )


def _is_empty(schema: Any) -> bool:
    """Takes no bytes, so no array can have such items."""
    if schema == "null":
        return True
    if isinstance(schema, dict) and schema["type"] == "record":
        return all(_is_empty(field["type"]) for field in schema["fields"])
    return False


_modules = itertools.count()


def module_from(schema: Any, folder: Path) -> ModuleType:
    """The classes of a schema, imported."""
    name = f"classes_{next(_modules)}"
    path = folder / f"{name}.py"
    path.write_text(write_classes(load_schema(schema)).source, "utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "org.example",
    "doc": 'All that a schema can have; even """quotes""" and a \\ and a final "quote"',
    "fields": [
        {"name": "id", "type": "long", "doc": "Its number.\nNever changes. " + "Long words. " * 12},
        {"name": "class", "type": "string", "default": 'it\'s "so" \\ ' + "long " * 30},
        {"name": "my-field", "type": ["null", "int"], "default": None},
        {"name": "from", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "stageId", "type": "int", "default": 3},
        {"name": "ratio", "type": "double", "default": 1},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 19000},
        {
            "name": "at",
            "type": {"type": "long", "logicalType": "timestamp-millis"},
            "default": 1570000000123,
        },
        {"name": "t", "type": {"type": "int", "logicalType": "time-millis"}, "default": 1000},
        {"name": "price", "type": _DECIMAL, "default": "\u00ff\u0001"},
        {
            "name": "uid",
            "type": {"type": "string", "logicalType": "uuid"},
            "default": "12345678-1234-5678-1234-567812345678",
        },
        {
            "name": "where",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [
                    {"name": "x", "type": "double", "default": 1},
                    {"name": "y", "type": "float"},
                    {
                        "name": "status",
                        "type": {
                            "type": "enum",
                            "name": "Status",
                            "doc": "How bad it is.",
                            "symbols": ["Critical", "Major", "title", "None", "_x_"],
                        },
                        "default": "Major",
                    },
                ],
            },
            "default": {"x": 1, "y": 2.5},
        },
        {"name": "places", "type": {"type": "map", "values": "Place"}, "default": {"a": {"y": 3}}},
        {"name": "next", "type": ["null", "Everything"], "default": None},
        {
            "name": "either",
            "type": [
                "string",
                "long",
                "Place",
                {
                    "type": "record",
                    "name": "other.Place",
                    "fields": [{"name": "x", "type": "double"}],
                },
                "Status",
                {"type": "array", "items": "Place"},
            ],
            "default": "x",
        },
        {
            "name": "raw",
            "type": {"type": "fixed", "name": "Three", "size": 3},
            "default": "\0\u00ff'",
        },
        {"name": "__dunder", "type": "boolean", "default": True},
        {"name": "str", "type": "string", "default": "s"},
        {"name": "class_", "type": "string", "default": "s"},
        {"name": "blob", "type": "bytes", "default": "\u00ff"},
        {"name": "levels", "type": {"type": "array", "items": "Status"}, "default": ["title"]},
    ],
}
EVERYTHING_DEFAULTS: dict[str, Any] = {
    "class": 'it\'s "so" \\ ' + "long " * 30,
    "my-field": None,
    "from": [],
    "stageId": 3,
    "ratio": 1.0,
    "day": date(2022, 1, 8),
    "at": datetime(2019, 10, 2, 7, 6, 40, 123000, tzinfo=UTC),
    "t": time(0, 0, 1),
    "price": Decimal("-0.255"),
    "uid": UUID("12345678-1234-5678-1234-567812345678"),
    "where": {"x": 1.0, "y": 2.5, "status": "Major"},
    "places": {"a": {"x": 1.0, "y": 3.0, "status": "Major"}},
    "next": None,
    "either": "x",
    "raw": b"\0\xff'",
    "__dunder": True,
    "str": "s",
    "class_": "s",
    "blob": b"\xff",
    "levels": ["title"],
}
