"""What tests of consumers ask again and again."""

from collections.abc import Iterable
from typing import TypeVar

E = TypeVar("E")


def of_kind(events: Iterable[object], kind: type[E]) -> list[E]:
    """Those events of a list that may still grow."""
    return [event for event in list(events) if isinstance(event, kind)]
