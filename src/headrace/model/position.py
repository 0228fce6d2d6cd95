"""Where to begin reading, or where to set a group: pure values and their text form."""

from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.errors import BadInput

_MOST_DIGITS = 18  # what surely fits the 64 bits Kafka has for offsets and timestamps


@dataclass(frozen=True)
class Earliest:
    """The oldest record that is still kept."""


@dataclass(frozen=True)
class Latest:
    """After the newest record: only what comes from now on."""


@dataclass(frozen=True)
class AtOffset:
    """A given offset."""

    offset: int


@dataclass(frozen=True)
class AtTime:
    """The first record with this timestamp or a later one, in milliseconds since 1970 (UTC)."""

    timestamp: int


Position = Earliest | Latest | AtOffset | AtTime


def parse_position(text: str) -> Position:
    """`earliest`, `latest`, an offset, `@` and epoch milliseconds, or an ISO 8601 time.

    >>> parse_position("42")
    AtOffset(offset=42)
    >>> parse_position("@1570000000000") == parse_position("2019-10-02T07:06:40Z")
    True
    """
    if text == "earliest":
        return Earliest()
    if text == "latest":
        return Latest()
    if _is_number(text):
        return AtOffset(int(text))
    if text.startswith("@") and _is_number(text[1:]):
        return AtTime(int(text[1:]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"{text!r} is no position",
            hint="use earliest, latest, an offset such as 42, a time such as "
            "2019-10-01T00:00:00Z, or @ and epoch milliseconds",
            position=text,
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Below zero, Kafka takes a timestamp for something else (-1 is the end, -2 the beginning).
    return AtTime(max(0, round(moment.timestamp() * 1000)))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
