"""Where to begin reading, or where to set a group: pure values and their text form."""

from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.errors import BadInput


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
    if text.isascii() and text.isdigit():
        return AtOffset(int(text))
    if text.startswith("@") and text[1:].isascii() and text[1:].isdigit():
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
    return AtTime(round(moment.timestamp() * 1000))
