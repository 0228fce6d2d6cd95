"""Rows to records for Kafka, as Spark expressions: those that go on, and dead letters."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.columns import HEADER, ROW_HEADER
from headrace.spark.ingest.limits import Limits
from headrace.spark.pipelines.databases import sends_rows_as_they_are
from headrace.spark.pipelines.dead_letters import dead_headers, raw, sendable, size_of
from headrace.spark.pipelines.decoding import REASON
from headrace.spark.pipelines.fields import ROW_ID, TIME
from headrace.spark.pipelines.forward_definition import Forward

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PIECE = "headrace:piece"
_KEY, _VALUE, _TOPIC = "headrace:key out", "headrace:value out", "headrace:topic out"


def goes_on(forward: Forward) -> "Column":
    """Whether a row is good, and wanted."""
    wanted = F.lit(True) if forward.where is None else F.expr(forward.where)
    return F.col(REASON).isNull() & F.coalesce(wanted, F.lit(False))


def made(rows: "DataFrame", forward: Forward, limits: Limits) -> "DataFrame":
    """Rows with the key and value that they go on with; if the topic would not take those, with a
    reason instead."""
    key, value = raw()
    if forward.key is not None:
        key = _bytes(rows, forward.key)
    if not sends_rows_as_they_are(forward):
        value = _json(forward).cast("binary")
    wanted = goes_on(forward)
    rows = rows.withColumns({_KEY: F.when(wanted, key), _VALUE: F.when(wanted, value)})
    refused = F.when(wanted, _refused(forward.to, limits))
    return rows.withColumn(REASON, F.coalesce(F.col(REASON), refused))


def _refused(to: str, limits: Limits) -> "Column":
    """A broker that refuses one record fails its whole batch, in every run."""
    key, size = F.col(_KEY), size_of(F.col(_KEY), F.col(_VALUE), F.col(ROW_ID))
    told = F.lit(f" bytes with its key and id, more than topic {to} takes")
    reason = F.when(size > limits.most_bytes, F.concat(F.lit("has "), size.cast("string"), told))
    if limits.needs_key:
        reason = reason.when(key.isNull(), F.lit(f"has no key, and topic {to} is compacted"))
    return reason


def records(rows: "DataFrame", forward: Forward, dead_topic: str) -> "DataFrame":
    """Rows that go on or are dead letters, with a key, a value and a topic."""
    bad = F.col(REASON).isNotNull()
    bad_key, bad_value = sendable(*raw())
    return rows.where(bad | goes_on(forward)).withColumns(
        {
            _KEY: F.when(bad, bad_key).otherwise(F.col(_KEY)),
            _VALUE: F.when(bad, bad_value).otherwise(F.col(_VALUE)),
            _TOPIC: F.when(bad, dead_topic).otherwise(forward.to),
        }
    )


def for_headrace(records: "DataFrame") -> "DataFrame":
    """As `format("headrace")` takes them: a column for each header."""
    headers = [text.alias(HEADER + name) for name, text in _headers().items()]
    return records.select(*_common(), F.col(PIECE).alias("piece"), *headers)


def for_spark(records: "DataFrame") -> "DataFrame":
    """As Spark's own Kafka sink takes them: an array of headers."""
    pairs = [
        F.struct(F.lit(name).alias("key"), text.alias("value")) for name, text in _headers().items()
    ]
    headers = F.filter(F.array(*pairs), lambda header: header["value"].isNotNull())
    return records.select(*_common(), headers.alias("headers"))


def _common() -> "list[Column]":
    names = {_KEY: "key", _VALUE: "value", _TOPIC: "topic"}
    return [F.col(f"`{name}`").alias(kafka) for name, kafka in names.items()]


def _headers() -> "dict[str, Column]":
    """All rows have their id, and dead letters where they come from, and why."""
    bad = F.col(REASON).isNotNull()
    dead = dead_headers()
    headers = {name: F.when(bad, text) for name, text in dead.items()}
    headers[ROW_HEADER] = F.when(bad, dead[ROW_HEADER]).otherwise(F.col(ROW_ID))
    return {name: text.cast("binary") for name, text in headers.items()}


def _bytes(rows: "DataFrame", expression: str) -> "Column":
    found = F.expr(expression)
    is_binary = rows.select(found).dtypes[0][1] == "binary"
    return found if is_binary else found.cast("string").cast("binary")


def _json(forward: Forward) -> "Column":
    """An object, without what is null; times are counts of milliseconds, as they came."""
    times = {field.column for field in forward.source.fields if field.type == TIME}
    columns = [
        F.unix_millis(name).alias(name) if name in times else F.col(name)
        for name in forward.columns_sent
    ]
    return F.to_json(F.struct(*columns))
