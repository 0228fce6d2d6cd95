"""A slice of the long tests, other ones for each commit: all of them run every few landings.

A long test says how many seconds it takes: `@pytest.mark.long(90)`.
"""

import hashlib
from collections.abc import Mapping

import pytest

MOST_TESTS = 3
MOST_SECONDS = 120


def seconds_of(item: pytest.Item) -> float | None:
    """How long it takes, by its mark; None if it is not a long test."""
    mark = item.get_closest_marker("long")
    if mark is None:
        return None
    if not mark.args:
        raise pytest.UsageError(f"{item.nodeid}: mark it as long(SECONDS)")
    return float(mark.args[0])


def choose(seconds: Mapping[str, float], seed: str) -> set[str]:
    """Up to three tests, in an order that the seed shuffles, that take two minutes together.

    The first one is taken however long it takes: none is too long to be ever run.
    """
    chosen: set[str] = set()
    room = float(MOST_SECONDS)
    for name in sorted(
        seconds, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest()
    ):
        if chosen and (len(chosen) == MOST_TESTS or seconds[name] > room):
            continue
        chosen.add(name)
        room -= seconds[name]
    return chosen


def keep_slice(items: list[pytest.Item], seed: str, config: pytest.Config) -> None:
    """Deselect all but the slice that this seed chooses."""
    long = {item.nodeid: found for item in items if (found := seconds_of(item)) is not None}
    chosen = choose(long, seed)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
