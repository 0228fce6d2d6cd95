"""Spans of time as they are written on the command line."""

import re

from headrace.errors import BadInput

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_LONGEST_DAYS = 36_500
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_span(text: str) -> float:
    """A span of time in seconds.

    >>> read_span("500ms"), read_span("10s"), read_span("2m")
    (0.5, 10.0, 120.0)
    """
    found = _SPAN.fullmatch(text)
    if found is None or not float(found[1]):
        raise BadInput(f"{text!r} is no span of time", hint="like 500ms, 10s or 1m")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if seconds > _LONGEST_DAYS * _SECONDS["d"]:
        raise BadInput(
            f"{text!r} is too long a span of time", hint=f"{_LONGEST_DAYS}d is the longest"
        )
    return seconds
