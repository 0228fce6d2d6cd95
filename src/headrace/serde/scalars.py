"""Single values, checked before fastavro writes them."""

import enum
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

Fit = Callable[[Any], Any]
_LARGEST_FLOAT = 3.4028235677973366e38  # from here on it would become infinite


class Misfit(ValueError):
    """A value that the schema has no place for, and the path to it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def inside(self, step: str) -> "Misfit":
        """The same, seen from one level further out."""
        joined = "" if not self.path or self.path.startswith("[") else "."
        self.path = f"{step}{joined}{self.path}"
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


def wrong(wanted: str, value: Any) -> Misfit:
    return Misfit(f"{wanted} is needed, not {type(value).__name__}")


def enum_symbol(schema: dict[str, Any]) -> Fit:
    symbols = frozenset(schema["symbols"])

    def fit(value: Any) -> str:
        symbol = value.value if isinstance(value, enum.Enum) else value
        if isinstance(symbol, str) and symbol in symbols:
            return symbol
        raise Misfit(f"{symbol!r} is no symbol of {schema['name']}")

    return fit


def fixed_bytes(size: int) -> Fit:
    def fit(value: Any) -> bytes:
        ready: bytes = _bytes(value)
        if len(ready) != size:
            raise Misfit(f"{size} bytes are needed, not {len(ready)}")
        return ready

    return fit


def _null(value: Any) -> None:
    if value is not None:
        raise wrong("None", value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong("a bool", value)
    return value


def _whole(bits: int) -> Fit:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def fit(value: Any) -> int:
        if type(value) is not int and (not isinstance(value, int) or isinstance(value, bool)):
            raise wrong("a whole number", value)
        if not low <= value <= high:
            raise Misfit(f"the number does not fit {bits} bits")
        return value

    return fit


def _double(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong("a number", value)
    try:
        return float(value)
    except OverflowError as error:
        raise Misfit("the number does not fit a double") from error


def _float(value: Any) -> float:
    number = _double(value)
    if _LARGEST_FLOAT <= abs(number) < float("inf"):
        raise Misfit("the number does not fit a float of 32 bits")
    return number


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise wrong("bytes", value)
    return bytes(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong("text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Misfit(f"not valid Unicode at character {error.start}") from error
    return value if type(value) is str else str.__str__(value)


def _instant(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise wrong("a datetime", value)
    if value.tzinfo is None:
        raise Misfit("the datetime has no time zone: give it one, such as tzinfo=UTC")
    return value


def _local_instant(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise wrong("a datetime", value)
    if value.tzinfo is not None:
        raise Misfit("a local timestamp has no time zone")
    return value


def _day(value: Any) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise wrong("a date", value)
    return value


def _clock(value: Any) -> time:
    if not isinstance(value, time):
        raise wrong("a time", value)
    return value


def _decimal(value: Any) -> Decimal:
    if not isinstance(value, Decimal):
        raise wrong("a Decimal", value)
    if not value.is_finite():
        raise Misfit(f"{value} is no number")
    return value


def _uuid(value: Any) -> UUID:
    if not isinstance(value, UUID):
        raise wrong("a UUID", value)
    return value


PRIMITIVE_FITS: dict[str, Fit] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(32),
    "long": _whole(64),
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}
# The raw number or text is not taken: it would come back as something else.
LOGICAL_FITS: dict[str, Fit] = {
    "int-date": _day,
    "int-time-millis": _clock,
    "long-time-micros": _clock,
    "long-timestamp-millis": _instant,
    "long-timestamp-micros": _instant,
    "long-local-timestamp-millis": _local_instant,
    "long-local-timestamp-micros": _local_instant,
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
    "string-uuid": _uuid,
}
