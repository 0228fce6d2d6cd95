"""What a default of an Avro schema, written as JSON, is in Python."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from headrace.errors import BadInput
from headrace.serde.schemas import RECORDS, AvroSchema, kind, logical

# What comes of a default that is of another type, out of range, or contains itself without end.
_UNFIT = (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_defaults(whole: AvroSchema) -> None:
    """Every default of a schema must be a value; fastavro looks at their JSON alone."""
    for record in (each for each in whole.types() if kind(each) in RECORDS):
        for field in record["fields"]:
            if "default" not in field:
                continue
            try:
                default_value(whole, field["type"], field["default"])
            except _UNFIT as error:
                raise BadInput(
                    f"the default of {record['name']}.{field['name']} does not fit: {error}",
                    hint="correct the schema, then try again",
                ) from error


def default_value(whole: AvroSchema, schema: Any, default: Any) -> Any:
    """A new value each time: lists and dicts must not be shared between records.

    Records become dicts, enums their symbols. Raises ValueError if the default does not fit.
    """
    schema = whole.definition(schema)
    found = kind(schema)
    if found == "union":
        return _of_union(whole, schema if isinstance(schema, list) else schema["type"], default)
    if name := logical(schema):
        return _LOGICAL[name](schema, default)
    if found in RECORDS:
        return {
            field["name"]: default_value(
                whole, field["type"], _of_field(schema["name"], field, default)
            )
            for field in schema["fields"]
        }
    if found == "array":
        return [default_value(whole, schema["items"], item) for item in default]
    if found == "map":
        return {key: default_value(whole, schema["values"], each) for key, each in default.items()}
    if found in ("bytes", "fixed"):
        return _bytes(default)
    if found in ("float", "double"):
        return float(default)
    return default


def fits(whole: AvroSchema, schema: Any, default: Any) -> bool:
    """Whether a default, as JSON, has the shape of a type; unions are decided by it."""
    schema = whole.definition(schema)
    wanted = _SHAPES.get(kind(schema), str)
    if isinstance(default, bool):
        return wanted is bool
    if kind(schema) == "enum":
        return default in schema["symbols"]
    if wanted is float:
        return isinstance(default, int | float)
    return isinstance(default, wanted)


_SHAPES: dict[str, type] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "array": list,
    "map": dict,
    "record": dict,
    "error": dict,
}


def _of_union(whole: AvroSchema, branches: list[Any], default: Any) -> Any:
    for branch in branches:  # by the older rule it is always the first
        if fits(whole, branch, default):
            return default_value(whole, branch, default)
    raise ValueError(f"the default {default!r} fits no type of its union")


def _of_field(record: str, field: dict[str, Any], default: dict[str, Any]) -> Any:
    if field["name"] in default:
        return default[field["name"]]
    if "default" in field:
        return field["default"]
    raise ValueError(f"the default of {record} has no {field['name']}")


def _bytes(default: str) -> bytes:
    return default.encode("latin-1")  # JSON has no bytes: each character stands for one


def _decimal(schema: dict[str, Any], default: str) -> Decimal:
    digits = int.from_bytes(_bytes(default), "big", signed=True)
    context = Context(prec=max(schema["precision"], 1))
    return Decimal(digits).scaleb(-schema.get("scale", 0), context)


def _moment(unit: timedelta, zone: bool) -> Callable[[dict[str, Any], int], datetime]:
    start = _EPOCH if zone else _EPOCH.replace(tzinfo=None)
    return lambda schema, default: start + default * unit


def _time(unit: timedelta) -> Callable[[dict[str, Any], int], time]:
    return lambda schema, default: (_EPOCH + default * unit).time()


_MILLI = timedelta(milliseconds=1)
_MICRO = timedelta(microseconds=1)
_LOGICAL: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "int-date": lambda schema, default: date(1970, 1, 1) + timedelta(days=default),
    "int-time-millis": _time(_MILLI),
    "long-time-micros": _time(_MICRO),
    "long-timestamp-millis": _moment(_MILLI, zone=True),
    "long-timestamp-micros": _moment(_MICRO, zone=True),
    "long-local-timestamp-millis": _moment(_MILLI, zone=False),
    "long-local-timestamp-micros": _moment(_MICRO, zone=False),
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
    "string-uuid": lambda schema, default: UUID(default),
}


def is_plain(value: Any) -> bool:
    """Whether fastavro's own handling of this default is right: an immutable JSON value."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)
