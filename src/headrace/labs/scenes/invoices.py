"""Rows of a database table stream to a topic: each version once, though the stream is killed.

A table of invoices in SQLite, read three ways: by an id that grows, by the time of the last change,
and by both. Rows are added, some with the same timestamp where a batch ends, one is changed, one
deleted; the stream ends and goes on. Then a stream in a process of its own is killed with SIGKILL
while it sends, rows change before the next one, and that one must neither repeat nor miss any.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from headrace.clients import Connection
from headrace.labs.stage import Stage

if TYPE_CHECKING:
    from headrace.spark.database.positions import Mode
    from headrace.spark.pipelines.runner import StreamOptions, StreamResult

PARTITIONS = 3
MODES: "tuple[Mode, ...]" = ("incrementing", "timestamp", "timestamp+incrementing")
MANY = 60  # rows for the stream that is killed
BATCH = 5
SECONDS_TO_SEND = 300  # Spark starts first
CHILD = "from headrace.labs.scenes.invoices import stream_until_killed as run; run()"
TABLE = """
CREATE TABLE invoices (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  title TEXT,
  details TEXT,
  billedamt DECIMAL(18,2),
  modified TIMESTAMP NOT NULL
)
"""
Version = tuple[int, str]


class Invoices:
    """The table, and each version that its rows had. A title names a version."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self.versions: list[Version] = []
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._database.execute(TABLE)
        self._now = 1_700_000_000  # seconds since 1970: long past

    def insert(self, *titles: str) -> None:
        """Rows with the same timestamp."""
        self._now += 1
        for title in titles:
            done = self._database.execute(
                "INSERT INTO invoices (title, billedamt, modified) VALUES (?, 9.95, ?)",
                (title, self._now),
            )
            self.versions.append((int(done.lastrowid or 0), title))

    def change(self, id: int, title: str) -> None:
        self._now += 1
        self._database.execute(
            "UPDATE invoices SET title = ?, modified = ? WHERE id = ?", (title, self._now, id)
        )
        self.versions.append((id, title))

    def delete(self, id: int) -> None:
        self._database.execute("DELETE FROM invoices WHERE id = ?", (id,))

    def close(self) -> None:
        self._database.close()


def run(stage: Stage) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-invoices-") as folder:
        stage.fact("versions", [act(stage, mode, Path(folder)) for mode in MODES])
        kill_and_resume(stage, Path(folder))


# --- three modes ---


def act(stage: Stage, mode: "Mode", folder: Path) -> dict[str, object]:
    """Rows come and change, and the stream is run again: a row of the table of facts."""
    topic, lake = stage.topic("invoices", PARTITIONS), folder / mode
    with table(folder / f"{mode}.db") as invoices:
        stage.say(f"mode {mode}: four rows, three of them with one timestamp, two to a batch")
        invoices.insert("a")
        invoices.insert("b", "c", "d")
        first = stream_once(stage, mode, invoices.url, topic, lake, rows=2)
        stage.say("one is changed, one deleted, two are new; the stream goes on")
        invoices.change(2, "b, changed")
        invoices.delete(3)
        invoices.insert("e", "f")
        second = stream_once(stage, mode, invoices.url, topic, lake, rows=1)
        nothing = stream_once(stage, mode, invoices.url, topic, lake, rows=1)
        versions = invoices.versions
    found = versions_in(stage, topic)
    unseen = {(2, "b, changed")} if mode == "incrementing" else set()
    promise = "each row" if unseen else "each row, and each change,"
    stage.check(
        f"{mode}: {promise} is in the topic exactly once",
        sorted(found) == sorted(set(versions) - unseen),
    )
    stage.check(f"{mode}: nothing new, nothing sent", nothing.rows_out == 0)
    return {
        "mode": mode,
        "written": len(versions),
        "sent at first": first.rows_out,
        "sent after the change": second.rows_out,
        "batches": first.batches + second.batches,
        "change seen": (2, "b, changed") in found,
        "records of the deleted row": sum(id == 3 for id, _ in found),
    }


# --- killed ---


def kill_and_resume(stage: Stage, folder: Path) -> None:
    topic, lake = stage.topic("invoices", PARTITIONS), folder / "killed"
    with table(folder / "killed.db") as invoices:
        for number in range(MANY // 2):
            invoices.insert(f"first {number}", f"second {number}")
        stage.say(f"a stream of its own begins to send {MANY} rows")
        with child(stage, invoices.url, topic, lake):
            stage.wait_until(
                lambda: bool(versions_in(stage, topic)), "rows are sent", SECONDS_TO_SEND, 0.05
            )
        before = versions_in(stage, topic)
        stage.say(f"killed after {len(before)} rows; two are changed, and the next one goes on")
        invoices.change(1, "changed")
        invoices.change(MANY, "changed")
        stream_once(stage, "timestamp+incrementing", invoices.url, topic, lake, rows=BATCH)
        versions = invoices.versions
    found = versions_in(stage, topic)
    stage.fact("rows before the kill, after it, repeated", [len(before), len(found), twice(found)])
    stage.check("it was killed in the middle", 0 < len(before) < MANY)
    stage.check("no version is in the topic twice", not twice(found))
    stage.check("every row is there as it is now", set(dict(versions).items()) <= set(found))
    stage.check(
        "a row that was sent before its change is there in both versions",
        {(1, "first 0"), (1, "changed")} <= set(found),
    )


@contextlib.contextmanager
def child(stage: Stage, url: str, topic: str, lake: Path) -> Iterator[None]:
    """A stream in another process, and its JVM; killed at the end."""
    dead = stage.topic("invoices.dead")
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, stage.connection.bootstrap, url, topic, str(lake), dead],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stream_until_killed() -> None:
    """What the child does."""
    from headrace.spark.pipelines.runner import stream

    bootstrap, url, topic, lake, dead = sys.argv[1:]
    wanted = options("timestamp+incrementing", url, topic, Path(lake), dead, BATCH, every=0.1)
    stream(wanted, Connection(bootstrap))


# --- streaming ---


def stream_once(
    stage: Stage, mode: "Mode", url: str, topic: str, lake: Path, rows: int
) -> "StreamResult":
    from headrace.spark.pipelines.runner import stream

    dead = stage.topic("invoices.dead")
    return stream(options(mode, url, topic, lake, dead, rows), stage.connection)


def options(
    mode: "Mode",
    url: str,
    topic: str,
    lake: Path,
    dead: str,
    rows: int,
    every: float | None = None,
) -> "StreamOptions":
    """The built-in pipeline's table in any mode."""
    from headrace.spark.pipelines import INVOICES, DatabaseTable, Forward
    from headrace.spark.pipelines.runner import StreamOptions

    source = DatabaseTable("invoices", *INVOICES.source.fields, url=url, mode=mode, delay=None)
    return StreamOptions(
        Forward("invoices", source=source, to=topic, key="id"),
        str(lake),
        every=every,
        show_lag=False,
        dead_topic=dead,
        records_per_batch=rows,
    )


@contextlib.contextmanager
def table(path: Path) -> Iterator[Invoices]:
    with contextlib.closing(Invoices(path)) as invoices:
        yield invoices


def versions_in(stage: Stage, topic: str) -> list[Version]:
    values = [orjson.loads(record.value or b"{}") for record in stage.records(topic)]
    return [(value["id"], value["title"]) for value in values]


def twice(found: list[Version]) -> int:
    return len(found) - len(set(found))
