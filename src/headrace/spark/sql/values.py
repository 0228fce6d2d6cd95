"""Rows of Spark as values that JSON can say, without loss.

Decimals are text, times are ISO in UTC, bytes are `{"base64": ...}`; a number in a VARIANT stays
the number that it is.
"""

import base64
import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Convert = Callable[[Any], Any]


def row_converter(schema: "StructType") -> Callable[[Any], list[Any]]:
    """From a row to a list of values, a column each."""
    converters = [_or_null(_converter(field.dataType)) for field in schema.fields]

    def convert(row: Any) -> list[Any]:
        return [convert(value) for convert, value in zip(converters, row, strict=True)]

    return convert


def _converter(kind: "DataType") -> Convert:
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        inner, names = row_converter(kind), kind.fieldNames()
        return lambda row: dict(zip(names, inner(row), strict=True))
    if isinstance(kind, t.ArrayType):
        element = _or_null(_converter(kind.elementType))
        return lambda values: [element(value) for value in values]
    if isinstance(kind, t.MapType):
        key, value = _converter(kind.keyType), _or_null(_converter(kind.valueType))
        return lambda found: {_as_key(key(name)): value(each) for name, each in found.items()}
    return _SIMPLE.get(type(kind).__name__, _same)


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _as_key(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _time(value: Any) -> str:
    """PySpark gives it without a zone, in this machine's."""
    from headrace.spark.pipelines.accounts import in_utc

    moment = in_utc(value)
    assert moment is not None
    return moment.isoformat()


def _float(value: float) -> float | str:
    """JSON has no word for what is no number.

    >>> _float(0.5), _float(float("-inf"))
    (0.5, '-Infinity')
    """
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _bytes(value: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(value).decode("ascii")}


def _variant(value: Any) -> Any:
    return _plain(value.toPython())


def _plain(value: Any) -> Any:
    """What a VARIANT holds."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if isinstance(value, bytes | bytearray):
        return _bytes(bytes(value))
    return value if isinstance(value, str | int | None) else str(value)


def _span(value: timedelta) -> str:
    return str(value)


_SIMPLE: dict[str, Convert] = {
    "TimestampType": _time,
    "TimestampNTZType": lambda value: value.isoformat(),
    "DateType": lambda value: value.isoformat(),
    "TimeType": lambda value: value.isoformat(),
    "DayTimeIntervalType": _span,
    "DecimalType": lambda value: format(value, "f"),
    "BinaryType": lambda value: _bytes(bytes(value)),
    "DoubleType": _float,
    "FloatType": _float,
    "VariantType": _variant,
}
