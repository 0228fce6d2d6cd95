"""Text, bytes and numbers, in the bytes that Kafka's own Java serializers write."""

import struct
from typing import ClassVar

from headrace.serde.base import Field, Serde


class Text(Serde[str]):
    """Text in UTF-8.

    >>> Text().encode("grüße", Field("t"))
    b'gr\\xc3\\xbc\\xc3\\x9fe'
    """

    def dump(self, value: str, field: Field) -> bytes:
        if not isinstance(value, str):
            raise TypeError(_not_a("text", value))
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"not valid Unicode at character {error.start}") from error

    def load(self, data: bytes, field: Field) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"not valid UTF-8 at byte {error.start}") from error


class Bytes(Serde[bytes]):
    """Bytes as they are."""

    def dump(self, value: bytes, field: Field) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(_not_a("bytes", value))
        return bytes(value)

    def load(self, data: bytes, field: Field) -> bytes:
        return data


class _Whole(Serde[int]):
    """Whole numbers of a fixed width, big-endian, two's complement."""

    width: ClassVar[int]

    def dump(self, value: int, field: Field) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(_not_a("a whole number", value))
        try:
            return value.to_bytes(self.width, "big", signed=True)
        except OverflowError as error:
            bits = self.width * 8
            raise ValueError(
                f"{_short(value)} does not fit {bits} bits (-2^{bits - 1} to 2^{bits - 1}-1)"
            ) from error

    def load(self, data: bytes, field: Field) -> int:
        _require_length(data, self.width)
        return int.from_bytes(data, "big", signed=True)


class Int(_Whole):
    """A whole number in 32 bits, as Java's IntegerSerializer writes it.

    >>> Int().encode(1, Field("t"))
    b'\\x00\\x00\\x00\\x01'
    """

    width = 4


class Long(_Whole):
    """A whole number in 64 bits, as Java's LongSerializer writes it."""

    width = 8


class Double(Serde[float]):
    """A floating-point number in 64 bits, as Java's DoubleSerializer writes it."""

    def dump(self, value: float, field: Field) -> bytes:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(_not_a("a number", value))
        try:
            number = float(value)
        except OverflowError as error:
            raise ValueError(f"{_short(value)} does not fit a double") from error
        if isinstance(value, int) and number != value:
            raise ValueError(f"{value} has no exact double, the nearest is {number:.0f}")
        return struct.pack(">d", number)

    def load(self, data: bytes, field: Field) -> float:
        _require_length(data, 8)
        (number,) = struct.unpack(">d", data)
        return float(number)


def _require_length(data: bytes, width: int) -> None:
    if len(data) != width:
        raise ValueError(f"{width} bytes are needed, there are {len(data):,}")


def _not_a(wanted: str, value: object) -> str:
    return f"{wanted} is needed, not {type(value).__name__}"


def _short(value: object) -> str:
    """A number for a message; Python refuses to write out very long ones."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length():,} bits"
    return str(value)
