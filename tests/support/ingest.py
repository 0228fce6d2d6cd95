"""Rows for ingest, as CSV and as JSON lines, and what must come of them."""

import csv
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.clients import Admin
from headrace.model import Latest, TopicPartition
from headrace.services.clickstream import HEADER, rows
from support.waiting import eventually

SMALL_CHUNK = 64 << 10  # bytes; the `small_chunks` of tests
_NUMBERS = {"product_id": int, "category_id": int, "price": float, "user_id": int}


def lines(count: int, seed: int = 0) -> list[bytes]:
    """Good rows of the clickstream, as CSV."""
    return [raw for raw, _ in rows(count, seed)]


def write_file(path: Path, some_lines: Iterable[bytes], header: bytes = HEADER) -> Path:
    path.write_bytes(header + b"".join(some_lines))
    return path


def json_line(line: bytes) -> bytes:
    """A good row of CSV as a line of JSON; what is empty is null."""
    named = zip(HEADER.decode().strip().split(","), line_columns(line), strict=True)
    row = {name: _NUMBERS.get(name, str)(text) if text else None for name, text in named}
    return json.dumps(row).encode() + b"\n"


def line_columns(line: bytes) -> list[str]:
    return next(csv.reader([line.decode().rstrip("\n")]))


def event(line: bytes) -> dict[str, Any]:
    """The event that a good line is, worked out without Spark."""
    when, kind, product, category, code, brand, price, user, session = line_columns(line)
    moment = datetime.strptime(when, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    return {
        "eventTime": int(moment.timestamp()) * 1000,
        "eventType": kind,
        "productId": int(product),
        "categoryId": int(category),
        "categoryCode": code or None,
        "brand": brand or None,
        "price": float(price),
        "userid": int(user),
        "userSession": session,
    }


def key_and_event(line: bytes) -> tuple[str, str]:
    return line_columns(line)[7], json.dumps(event(line), sort_keys=True)


def records(cluster: hr.LocalCluster, topic: str) -> list[hr.Record]:
    """What a reader of committed records sees."""
    settings = {"isolation.level": "read_committed"}
    with hr.Reader(topic, connection=cluster.bootstrap, settings=settings) as reader:
        return [record for batch in reader.batches() for record in batch]


def wait_for_markers(cluster: hr.LocalCluster, topic: str) -> None:
    """A broker says that a transaction is committed a moment before readers can see it."""
    admin = Admin(cluster.bootstrap)
    places = [TopicPartition(topic, each.id) for each in admin.topic(topic).partitions]
    eventually(
        lambda: admin.offsets(places, Latest()) == admin.offsets(places, Latest(), committed=True),
        "no transaction is open",
    )


def assert_exact(cluster: hr.LocalCluster, topic: str, some_lines: list[bytes]) -> None:
    """Every line once: by key and content, and by the row's own id."""
    wait_for_markers(cluster, topic)
    found = records(cluster, topic)
    content = Counter(
        (record.key.decode(), json.dumps(json.loads(record.value), sort_keys=True))
        for record in found
    )
    assert content == Counter(map(key_and_event, some_lines))
    assert len({record.headers for record in found}) == len(some_lines)
    assert {[name for name, _ in record.headers] == ["headrace-row"] for record in found} <= {True}


def dead_letters(cluster: hr.LocalCluster, topic: str) -> dict[int, tuple[str, bytes, str]]:
    """By line: the file, the raw bytes and the reason."""
    found = {}
    for record in records(cluster, f"{topic}.dead"):
        named = {name: value.decode() for name, value in record.headers}
        assert record.key is None
        line = int(named["headrace-line"])
        assert line not in found
        found[line] = named["headrace-file"], record.value, named["headrace-reason"]
    return found
