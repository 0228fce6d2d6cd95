"""A record as one line of JSON, and back, without loss. Pure.

    {"topic": "clicks", "partition": 0, "offset": 42, "timestamp": 1570000000000,
     "timestamp_type": "create", "key": "user-7", "value": null,
     "headers": [{"key": "source", "value": {"base64": "/w=="}}]}

Keys, values and header values are text where they are UTF-8, `{"base64": ...}` where they are
not, and null where they are null. Headers are a list: a name may come twice, and order counts.
"""

import base64
from typing import Any

import orjson

from headrace.clients.deliveries import Outgoing
from headrace.errors import BadInput
from headrace.model import Header, Record

_KNOWN = frozenset(
    {
        *("topic", "partition", "offset", "timestamp", "timestamp_type"),
        *("key", "value", "headers", "leader_epoch"),
    }
)


def to_document(record: Record) -> dict[str, Any]:
    """What `consume -o json` prints of a record."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type.value,
        "key": _show(record.key),
        "value": _show(record.value),
        "headers": [{"key": name, "value": _show(value)} for name, value in record.headers],
        "leader_epoch": record.leader_epoch,
    }


def to_line(record: Record) -> bytes:
    """One line, newline included."""
    return orjson.dumps(to_document(record), option=orjson.OPT_APPEND_NEWLINE)


def from_line(line: bytes, topic: str, *, keep_partition: bool = False) -> Outgoing:
    """The record to send to `topic`; raises BadInput saying what is wrong with the line."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"it is not JSON: {error}", hint=_HINT) from error
    if not isinstance(document, dict):
        raise BadInput(f"it is {type(document).__name__}, not an object", hint=_HINT)
    if "value" not in document:
        raise BadInput('it has no "value"', hint='a tombstone has "value": null')
    if unknown := sorted(set(document) - _KNOWN):
        raise BadInput(f"it has the unknown field {unknown[0]!r}", hint=_HINT)
    timestamp = _integer(document, "timestamp", _TIMESTAMPS)
    return Outgoing(
        topic=topic,
        value=_read("value", document["value"]),
        key=_read("key", document.get("key")),
        headers=_headers(document.get("headers")),
        partition=_integer(document, "partition", _PARTITIONS) if keep_partition else None,
        timestamp=timestamp if timestamp is not None and timestamp >= 0 else None,
    )


_TIMESTAMPS = range(-(1 << 63), 1 << 63)  # Kafka's; negative ones mean that there is none
_PARTITIONS = range(1 << 31)
_HINT = "lines look as `headrace consume -o ndjson` prints them"


def _show(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def _read(name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except ValueError as error:
            raise BadInput(f'"{name}" is no base64: {error}', hint=_HINT) from error
    raise BadInput(
        f'"{name}" must be text, null or {{"base64": ...}}, not {type(value).__name__}',
        hint=_HINT,
    )


def _headers(value: Any) -> tuple[Header, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(
        isinstance(header, dict) and isinstance(header.get("key"), str) for header in value
    ):
        raise BadInput('"headers" must be a list of {"key": ..., "value": ...}', hint=_HINT)
    return tuple(
        (header["key"], _read(f"headers.{header['key']}", header.get("value"))) for header in value
    )


def _integer(document: dict[str, Any], name: str, allowed: range) -> int | None:
    value = document.get(name)
    if value is None or (type(value) is int and value in allowed):
        return value
    raise BadInput(f'"{name}" must be a whole number in range, not {value!r}', hint=_HINT)
