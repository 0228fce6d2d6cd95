"""When a row was changed, out of what its timestamp column holds. Pure.

A value stands for a span of time, not for a point: `2024-05-01 12:00:00` says a second, and as long
as that second lasts another row may get the same value. So a row counts when its span is over.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from headrace.errors import BadInput

Timestamp = str | int | float  # as the database has it; JSON can hold it
FORMS = "a time, an ISO text, or seconds or milliseconds since 1970"

SECOND = 1_000_000  # in microseconds, as all moments here
_MILLISECOND = 1_000
_MINUTE, _HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND
_NO_SECONDS = re.compile(r"[^T ]+[T ]\d\d(?P<minutes>:?\d\d)?(Z|[+-]\d\d(:?\d\d)?)?")
_EPOCH = datetime(1970, 1, 1)
# A number is a count of seconds, milliseconds or microseconds since 1970, by its size: each covers
# the years 1973 to 5138.
_LEAST = 10**8
_UNITS = ((10**11, SECOND), (10**14, _MILLISECOND), (10**17, 1))


class Span(NamedTuple):
    """From `begin` up to but without `end`, in microseconds since 1970."""

    begin: int
    end: int


def span_of(value: object) -> Span:
    """The span that a timestamp stands for. Times without a zone are taken as they are.

    >>> span_of("2024-05-01 12:00:00").end - span_of("2024-05-01 12:00:00").begin
    1000000
    >>> span_of("2024-05-01 12:00").end - span_of("2024-05-01 12:00").begin
    60000000
    >>> span_of(1714564800) == span_of("2024-05-01T12:00:00Z")
    True
    """
    found = _span(value)
    if found is None:
        raise BadInput(f"a timestamp is {value!r}, which is no time", hint=FORMS)
    return found


def iso(value: object, *, naive: bool = False) -> str:
    """A timestamp as ISO text; `naive` ones have no zone.

    >>> iso(1714564800), iso("2024-05-01 12:00:00.250")
    ('2024-05-01T12:00:00Z', '2024-05-01T12:00:00.250Z')
    """
    moment = _EPOCH + timedelta(microseconds=span_of(value).begin)
    fine = "microseconds" if moment.microsecond % _MILLISECOND else "milliseconds"
    text = moment.isoformat(timespec=fine if moment.microsecond else "seconds")
    return text if naive else f"{text}Z"


def _span(value: object) -> Span | None:
    if isinstance(value, datetime):
        return _of_datetime(value)
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _of_number(value)
    return None


def _of_datetime(value: datetime) -> Span:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    begin = (value - _EPOCH) // timedelta(microseconds=1)
    # Digits that are zero may be digits that the column does not have.
    for unit in (SECOND, _MILLISECOND):
        if begin % unit == 0:
            return Span(begin, begin + unit)
    return Span(begin, begin + 1)


def _of_text(value: str) -> Span | None:
    text = value.strip()
    try:
        if text.isdecimal() and len(text) >= len(str(_LEAST)):
            return _of_number(int(text))
        found = _of_datetime(datetime.fromisoformat(text))
    except (ValueError, OverflowError):  # in UTC it may be beyond the years that there are
        return None
    coarse = _unit_of(text)
    return found if coarse is None else Span(found.begin, found.begin + coarse)


def _unit_of(text: str) -> int | None:
    """A day, an hour or a minute, if the text says no more than that."""
    try:
        date.fromisoformat(text)
        return DAY
    except ValueError:
        if (found := _NO_SECONDS.fullmatch(text)) is None:
            return None
        return _HOUR if found["minutes"] is None else _MINUTE


def _of_number(value: int | float) -> Span | None:
    for limit, unit in _UNITS:
        if _LEAST <= value < limit:
            begin = round(value * unit)
            whole = isinstance(value, int) or value.is_integer()
            return Span(begin, begin + (unit if whole else min(unit, _MILLISECOND)))
    return None
