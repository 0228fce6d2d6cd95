"""Pipelines that die in the middle of a batch."""

from typing import Any

import pytest

from headrace.spark.pipelines.lake import Lake


class Crash(Exception):
    """What a test throws in the middle of a batch."""


def dying_after_each_write(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on every table that is written ends the run; the list names them."""
    written: list[str] = []
    for name in ("append", "merge"):
        original = getattr(Lake, name)

        def write_and_die(self: Lake, table: str, *rest: Any, original: Any = original) -> None:
            original(self, table, *rest)
            written.append(table)
            raise Crash(f"after {table}")

        monkeypatch.setattr(Lake, name, write_and_die)
    return written


def dying_before(monkeypatch: pytest.MonkeyPatch, *tables: str) -> None:
    """From now on a run ends when it is about to add to one of these tables."""
    original = Lake.append

    def die_or_append(self: Lake, table: str, *rest: Any) -> None:
        if table in tables:
            raise Crash(f"before {table}")
        original(self, table, *rest)

    monkeypatch.setattr(Lake, "append", die_or_append)
