"""What a serde is, and the errors that say where bytes did not become objects.

Your own takes ten lines. `dump` and `load` may raise whatever they like: it becomes EncodeFailed
or DecodeFailed with the topic, the offset and the first bytes. None never reaches them.

    class Point(Serde[tuple[int, int]]):
        def dump(self, value: tuple[int, int], field: Field) -> bytes:
            return f"{value[0]},{value[1]}".encode()

        def load(self, data: bytes, field: Field) -> tuple[int, int]:
            x, y = data.decode().split(",")
            return int(x), int(y)
"""

from abc import ABC, abstractmethod
from typing import Generic, Literal, NamedTuple, TypeVar

from headrace.errors import DecodeFailed, EncodeFailed, HeadraceError

T = TypeVar("T")
Part = Literal["key", "value"]
FIRST_BYTES = 16


class Field(NamedTuple):
    """Where bytes belong: the key or the value of a record of a topic.

    >>> str(Field("clicks", "value", 0, 42))
    'the value of clicks[0]@42'
    >>> str(Field("clicks", "key"))
    'the key of clicks'
    """

    topic: str
    part: Part = "value"
    partition: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        partition = "" if self.partition is None else f"[{self.partition}]"
        offset = "" if self.offset is None else f"@{self.offset}"
        return f"the {self.part} of {self.topic}{partition}{offset}"


class Serde(ABC, Generic[T]):
    """Turns objects into bytes and back. None is null both ways: a tombstone is not an empty text.

    A subclass writes `dump` and `load`; users call `encode` and `decode`.
    """

    def encode(self, value: T | None, field: Field) -> bytes | None:
        """The bytes of a value; raises EncodeFailed."""
        if value is None:
            return None
        try:
            return self.dump(value, field)
        except HeadraceError:
            raise
        except Exception as error:
            raise encode_failed(describe(error), field) from error

    def decode(self, data: bytes | None, field: Field) -> T | None:
        """The value of bytes; raises DecodeFailed."""
        if data is None:
            return None
        try:
            return self.load(data, field)
        except HeadraceError:
            raise
        except Exception as error:
            raise decode_failed(describe(error), data, field) from error

    @abstractmethod
    def dump(self, value: T, field: Field) -> bytes:
        """The bytes of a value that is not None; may raise anything."""

    @abstractmethod
    def load(self, data: bytes, field: Field) -> T:
        """The value of bytes; may raise anything."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def encode_failed(reason: str, field: Field) -> EncodeFailed:
    return EncodeFailed(
        f"{field} cannot be encoded: {reason}",
        hint="nothing was sent; give a value that fits the serde",
        topic=field.topic,
        part=field.part,
        reason=reason,
    )


def decode_failed(reason: str, data: bytes, field: Field) -> DecodeFailed:
    first = bytes(data[:FIRST_BYTES]).hex(" ")
    shown = f"{first} ..." if len(data) > FIRST_BYTES else first or "none"
    return DecodeFailed(
        f"{field} cannot be decoded: {reason} ({len(data):,} bytes, the first: {shown})",
        hint="was it written with another serde? `headrace consume` shows the bytes",
        topic=field.topic,
        part=field.part,
        partition=field.partition,
        offset=field.offset,
        first_bytes=first,
        length=len(data),
        reason=reason,
    )


def describe(error: Exception) -> str:
    """One line. What a serde says on purpose is a plain ValueError or TypeError."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = " ".join(str(error).split())
    if type(error) in (ValueError, TypeError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
