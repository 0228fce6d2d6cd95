"""Rows as records: values, keys, headers and dead letters, as Spark expressions."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.columns import HEADER, ROW_HEADER
from headrace.spark.ingest.columns import SHOWN_CHARACTERS, milliseconds, problem, typed
from headrace.spark.ingest.formats import Format
from headrace.spark.ingest.limits import Limits, Times
from headrace.spark.ingest.registration import Registered
from headrace.spark.ingest.schema import RowSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame


_NO_LIMITS = Limits()


def to_records(
    lines: "DataFrame",
    schema: RowSchema,
    *,
    dead: str,
    key: str | None,
    value: str,
    limits: Limits = _NO_LIMITS,
    format: Format = "csv",
    avro: Registered | None = None,
) -> "DataFrame":
    """The table of `format("headrace")`: events, and bad rows for the dead letters' topic.

    With `value="avro"`, `avro` is the schema of the values. A row beyond `limits` is bad; if they
    speak of times, each record has the time of its event.
    """
    rows = lines
    for index, column in enumerate(schema.columns):
        rows = rows.withColumn(f"t{index}", typed(column, F.col(f"c{index}"), format))
    problems = [
        problem(column, F.col(f"c{index}"), F.col(f"t{index}"), format)
        for index, column in enumerate(schema.columns)
    ]
    content, named = _value(schema, value, avro), _key(schema, key)
    problems.append(_too_large(content, named, value, limits.most_bytes))
    if limits.needs_key:
        problems.append(F.when(named.isNull(), F.lit("has no key, and the topic is compacted")))
    if limits.times is not None:
        problems.append(_time_not_taken(schema, limits.times))
    rows = rows.withColumn("problem", F.coalesce("reason", *problems))
    good = F.col("problem").isNull()
    row_id = F.concat(F.substring("piece", 1, 16), F.lit(":"), F.col("line").cast("string"))
    causes = (
        ("headrace-file", F.col("file")),
        ("headrace-line", F.col("line").cast("string")),
        ("headrace-reason", F.col("problem")),
    )
    moments = []
    if limits.times is not None:
        moments = [F.when(good, _timestamp(schema)).alias("timestamp")]
    # What good rows do not have is null there, and costs next to nothing on the way.
    return rows.select(
        F.when(~good, F.lit(dead)).alias("topic"),
        F.when(good, named).alias("key"),
        F.when(good, content).otherwise(F.col("raw")).alias("value"),
        row_id.cast("binary").alias(HEADER + ROW_HEADER),
        *(F.when(~good, cause.cast("binary")).alias(HEADER + name) for name, cause in causes),
        *moments,
    )


def for_sparks_sink(records: "DataFrame", topic: str) -> "DataFrame":
    """The same for Spark's own Kafka sink, which has a topic and an array of headers in each row
    (and takes no timestamps)."""
    names = [name for name in records.columns if name.startswith(HEADER)]
    headers = F.array(*(_header(name) for name in names))
    return records.select(
        F.coalesce("topic", F.lit(topic)).alias("topic"),
        "key",
        "value",
        F.when(F.col("topic").isNull(), F.slice(headers, 1, 1)).otherwise(headers).alias("headers"),
    )


def _header(column: str) -> "Expression":
    name = F.lit(column.removeprefix(HEADER))
    return F.struct(name.alias("key"), F.col(column).alias("value"))


def _too_large(content: "Expression", key: "Expression", kind: str, most: int) -> "Expression":
    """A row that fits may not fit as JSON, where a character can take six bytes, and its key is
    sent beside it."""
    size = F.octet_length(content) + F.coalesce(F.octet_length(key), F.lit(0))
    too_large = (F.octet_length("raw") > most // 7) & (size > most)
    told = F.lit(f" bytes as {kind} with its key, too many")
    return F.when(too_large, F.concat(F.lit("has "), size.cast("string"), told))


def _time_not_taken(schema: RowSchema, times: Times) -> "Expression":
    moment, name = _timestamp(schema), schema.time or ""
    shown = F.substring(F.col(f"c{_index(schema, name)}").cast("string"), 1, SHOWN_CHARACTERS)

    def told(cause: str) -> "Expression":
        return F.concat(F.lit(f"{name} cannot be a record's time, it is {cause}: "), shown)

    return (
        F.when(moment < 1, told("not after 1970"))
        .when(moment < times.earliest, told("earlier than the topic takes"))
        .when(moment > times.latest, told("later than the topic takes"))
    )


def _key(schema: RowSchema, key: str | None) -> "Expression":
    if key is None:
        return F.lit(None).cast("binary")
    return F.col(f"c{_index(schema, key)}").cast("string").cast("binary")


def _timestamp(schema: RowSchema) -> "Expression":
    """The row's time. Without one there are no `times`: the options were checked."""
    time = schema.time or ""
    return milliseconds(schema.column(time), F.col(f"t{_index(schema, time)}"))


def _value(schema: RowSchema, kind: str, avro: Registered | None) -> "Expression":
    if kind == "csv":
        return F.col("raw")
    event = F.struct(
        *(F.col(f"t{index}").alias(column.field) for index, column in enumerate(schema.columns))
    )
    if avro is None:
        return F.to_json(event, {"ignoreNullFields": "false"}).cast("binary")
    from pyspark.sql.avro.functions import to_avro

    return F.concat(F.lit(avro.header), to_avro(event, avro.text))


def _index(schema: RowSchema, name: str) -> int:
    return schema.columns.index(schema.column(name))
