"""Rows as records: values, keys, headers and dead letters, as Spark expressions."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.columns import HEADER, ROW_HEADER
from headrace.spark.ingest.columns import milliseconds, problem, typed
from headrace.spark.ingest.formats import Format
from headrace.spark.ingest.registration import Registered
from headrace.spark.ingest.rows import MAX_ROW_BYTES
from headrace.spark.ingest.schema import RowSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame


def to_records(
    lines: "DataFrame",
    schema: RowSchema,
    *,
    dead: str,
    key: str | None,
    value: str,
    event_time: bool,
    format: Format = "csv",
    avro: Registered | None = None,
) -> "DataFrame":
    """The table of `format("headrace")`: events, and bad rows for the dead letters' topic.

    With `value="avro"`, `avro` is the schema of the values.
    """
    rows = lines
    for index, column in enumerate(schema.columns):
        rows = rows.withColumn(f"t{index}", typed(column, F.col(f"c{index}"), format))
    problems = [
        problem(column, F.col(f"c{index}"), F.col(f"t{index}"), format)
        for index, column in enumerate(schema.columns)
    ]
    content = _value(schema, value, avro)
    rows = rows.withColumn("problem", F.coalesce("reason", *problems, _too_large(content, value)))
    good = F.col("problem").isNull()
    row_id = F.concat(F.substring("piece", 1, 16), F.lit(":"), F.col("line").cast("string"))
    causes = (
        ("headrace-file", F.col("file")),
        ("headrace-line", F.col("line").cast("string")),
        ("headrace-reason", F.col("problem")),
    )
    moments = []
    if event_time and schema.time is not None:
        moments = [F.when(good, _timestamp(schema, schema.time)).alias("timestamp")]
    # What good rows do not have is null there, and costs next to nothing on the way.
    return rows.select(
        F.when(~good, F.lit(dead)).alias("topic"),
        _key(schema, key, good).alias("key"),
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


def _too_large(content: "Expression", kind: str) -> "Expression":
    """A row that fits may not fit as JSON, where a character can take six bytes."""
    size = F.octet_length(content)
    too_large = (F.octet_length("raw") > MAX_ROW_BYTES // 6) & (size > MAX_ROW_BYTES)
    text = F.concat(F.lit("has "), size.cast("string"), F.lit(f" bytes as {kind}, too many"))
    return F.when(too_large, text)


def _key(schema: RowSchema, key: str | None, good: "Expression") -> "Expression":
    if key is None:
        return F.lit(None).cast("binary")
    return F.when(good, F.col(f"c{_index(schema, key)}").cast("string").cast("binary"))


def _timestamp(schema: RowSchema, time: str) -> "Expression":
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
