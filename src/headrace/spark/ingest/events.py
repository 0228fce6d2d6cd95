"""Lines as events: types, JSON, keys and dead letters, as Spark expressions."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.ingest.lines import MAX_ROW_BYTES
from headrace.spark.ingest.schema import Column, RowSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

ROW_HEADER = "headrace-row"
SHOWN_CHARACTERS = 100
_WHAT = {"long": "whole number", "double": "number", "time": "time", "enum": "known value"}


def to_records(
    lines: "DataFrame",
    schema: RowSchema,
    *,
    topic: str,
    dead: str,
    key: str | None,
    value: str,
    event_time: bool,
) -> "DataFrame":
    """The table of `format("headrace")`: events for the topic, bad rows for the dead letters."""
    typed = lines
    for index, column in enumerate(schema.columns):
        typed = typed.withColumn(f"t{index}", _typed(column, F.col(f"c{index}")))
    problems = [_problem(index, column) for index, column in enumerate(schema.columns)]
    typed = typed.withColumn("problem", F.coalesce("reason", *problems, _too_large(schema, value)))
    good = F.col("problem").isNull()
    row_id = F.concat(F.substring("piece", 1, 16), F.lit(":"), F.col("line").cast("string"))
    moment = F.lit(None).cast("long")
    if event_time and schema.time is not None:
        moment = F.when(good, F.col(f"t{_index(schema, schema.time)}"))
    return typed.select(
        F.when(good, F.lit(topic)).otherwise(F.lit(dead)).alias("topic"),
        _key(schema, key, good).alias("key"),
        F.when(good, _value(schema, value)).otherwise(F.col("raw")).alias("value"),
        F.when(good, F.array(_header(ROW_HEADER, row_id)))
        .otherwise(
            F.array(
                _header(ROW_HEADER, row_id),
                _header("headrace-file", F.col("file")),
                _header("headrace-line", F.col("line").cast("string")),
                _header("headrace-reason", F.col("problem")),
            )
        )
        .alias("headers"),
        moment.alias("timestamp"),
        F.col("piece"),
    )


def _typed(column: Column, text: "Expression") -> "Expression":
    filled = F.when(text != "", text)
    if column.type == "long":
        return filled.try_cast("bigint")
    if column.type == "double":
        return filled.try_cast("double")
    if column.type == "time":
        return F.unix_millis(F.try_to_timestamp(filled, F.lit(column.format)))
    if column.type == "enum":
        return F.when(filled.isin(*column.values), filled)
    return filled


def _problem(index: int, column: Column) -> "Expression":
    """What is wrong with a column of a row, or null."""
    text = F.col(f"c{index}")
    empty = F.lit(f"{column.name} is empty") if column.required else F.lit(None)
    if column.type == "string":
        return F.when(text == "", empty)
    shown = F.substring(text, 1, SHOWN_CHARACTERS)
    wrong = F.concat(F.lit(f"{column.name} is no {_WHAT[column.type]}: "), shown)
    return F.when(F.col(f"t{index}").isNull(), F.when(text == "", empty).otherwise(wrong))


def _too_large(schema: RowSchema, kind: str) -> "Expression":
    """A row that fits may not fit as JSON, where a character can take six bytes."""
    size = F.octet_length(_value(schema, kind))
    too_large = (F.octet_length("raw") > MAX_ROW_BYTES // 6) & (size > MAX_ROW_BYTES)
    text = F.concat(F.lit("has "), size.cast("string"), F.lit(f" bytes as {kind}, too many"))
    return F.when(too_large, text)


def _key(schema: RowSchema, key: str | None, good: "Expression") -> "Expression":
    if key is None:
        return F.lit(None).cast("binary")
    return F.when(good, F.col(f"c{_index(schema, key)}").cast("binary"))


def _value(schema: RowSchema, kind: str) -> "Expression":
    if kind == "csv":
        return F.col("raw")
    fields = [F.col(f"t{index}").alias(c.field) for index, c in enumerate(schema.columns)]
    return F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}).cast("binary")


def _header(name: str, value: "Expression") -> "Expression":
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _index(schema: RowSchema, name: str) -> int:
    return schema.columns.index(schema.column(name))
