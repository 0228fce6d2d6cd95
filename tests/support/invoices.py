"""A table of invoices that changes, and what of it must be in a topic."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

import headrace as hr
from headrace.spark.pipelines import INVOICES, DatabaseTable, Forward
from support.ingest import records

TABLE = """
CREATE TABLE invoices (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  title TEXT NOT NULL,
  details TEXT,
  billedamt DECIMAL(18,2),
  modified TIMESTAMP NOT NULL
)
"""
Version = tuple[int, str]  # id and title: each version of a row has a title of its own


class Invoices:
    """A SQLite database. Times are whole seconds since 1970, long past."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._database.execute(TABLE)
        self._now = 1_700_000_000
        self.versions: list[Version] = []

    def tick(self) -> None:
        """The next second."""
        self._now += 1

    def insert(self, *titles: str) -> None:
        """Rows that share a timestamp."""
        for title in titles:
            done = self._database.execute(
                "INSERT INTO invoices (title, details, billedamt, modified) VALUES (?, ?, ?, ?)",
                (title, None, 0.1, self._now),
            )
            self.versions.append((int(done.lastrowid or 0), title))

    def change(self, id: int, title: str) -> None:
        self._database.execute(
            "UPDATE invoices SET title = ?, modified = ? WHERE id = ?", (title, self._now, id)
        )
        self.versions.append((id, title))

    def delete(self, id: int) -> None:
        self._database.execute("DELETE FROM invoices WHERE id = ?", (id,))

    def close(self) -> None:
        self._database.close()


def in_mode(mode: str, **settings: Any) -> Forward:
    """The pipeline `invoices` in another mode, or otherwise changed."""
    fields = settings.pop("fields", INVOICES.source.fields)
    settings = {"mode": mode, "delay": None, **settings}
    return Forward(
        "invoices", source=DatabaseTable("invoices", *fields, **settings), to="invoices", key="id"
    )


def versions_in(cluster: hr.LocalCluster, topic: str) -> list[Version]:
    """In the order of their ids, then as they came."""
    return by_id((value["id"], value["title"]) for value in values_in(cluster, topic))


def values_in(cluster: hr.LocalCluster, topic: str) -> list[dict[str, Any]]:
    found = [(record.key, orjson.loads(record.value or b"")) for record in records(cluster, topic)]
    assert all(key == str(value["id"]).encode() for key, value in found)
    return [value for _, value in found]


def by_id(versions: Iterable[Version]) -> list[Version]:
    return sorted(versions, key=lambda version: version[0])
