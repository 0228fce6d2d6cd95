"""A row as JSON: numbers exact, times as ISO text, bytes as base64."""

import base64
import math
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson

from headrace.spark.database.moments import iso

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_NON_STR_KEYS


def to_json(names: Sequence[str], values: Sequence[Any]) -> bytes:
    """A row as a JSON object.

    >>> to_json(["id", "amount", "photo"], [2**60 + 1, Decimal("12.50"), b"png"])
    b'{"id":1152921504606846977,"amount":12.50,"photo":"cG5n"}'
    >>> to_json(["ratio"], [float("nan")])
    b'{"ratio":"NaN"}'
    """
    row = {name: _told(value) for name, value in zip(names, values, strict=True)}
    return orjson.dumps(row, default=_other, option=_OPTIONS)


def _told(value: Any) -> Any:
    """JSON has no word for numbers that are none, and orjson would say null."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return [_told(each) for each in value] if isinstance(value, list) else value


def _other(value: Any) -> Any:
    if isinstance(value, Decimal):
        # JSON has no word for those that are no number.
        return orjson.Fragment(str(value)) if value.is_finite() else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return iso(value, naive=value.tzinfo is None)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return str(value)
