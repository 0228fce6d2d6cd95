"""Records to typed rows, as Spark expressions: no row passes through Python.

A bad record keeps its key and value and has a reason; a good one has its columns, and null there.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from headrace.clients.registries import registry_of
from headrace.errors import ConfigError
from headrace.spark.columns import ROW_HEADER
from headrace.spark.pipelines.avro_values import AvroReader
from headrace.spark.pipelines.csv_values import CsvReader
from headrace.spark.pipelines.definition import Derive, Lookup, Pipeline, Topic, Way
from headrace.spark.pipelines.fields import KAFKA_COLUMNS, RESCUED, ROW_ID, Avro, Csv, Json, Value
from headrace.spark.pipelines.json_values import JsonReader
from headrace.spark.pipelines.lake import fingerprint
from headrace.spark.pipelines.values import Reader, bounded, nothing, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.clients import Connection

# No name of a user's has a colon.
REASON = "headrace:reason"
STRANGE = "headrace:strange"  # the schema of a record that was not read for want of it
RAW = ("headrace:key", "headrace:value")


def reader_of(source: Topic, connection: "Connection") -> Reader:
    """What reads the values of a source, for the life of a run. Avro needs the registry that is
    beside the cluster."""
    if isinstance(source.value, Avro):
        return AvroReader(source.value, source.names, registry_of(connection))
    return _plain_reader(source.value)


def _plain_reader(value: Value) -> Reader:
    if isinstance(value, Json):
        return JsonReader(value)
    if isinstance(value, Csv):
        return CsvReader(value)
    raise ConfigError(
        "Avro values are read batch by batch, which this pipeline does not do",
        hint="use JSON or CSV values, or a pipeline with tables",
    )


def decode(
    records: "DataFrame",
    pipeline: Pipeline,
    lookup: "Callable[[Lookup], DataFrame]",
    read: Reader | None = None,
) -> "DataFrame":
    """Rows with the pipeline's columns, a reason where a record is bad, and a column `unmet:N` for
    each expectation that only warns or fails."""
    rows = _after_steps(read_values(records, pipeline.source.value, read), pipeline, lookup)
    return _with_few_bytes(_judged(_timed(rows, pipeline), pipeline))


def read_values(records: "DataFrame", value: Value, read: Reader | None = None) -> "DataFrame":
    """Typed rows, with a reason where a record is bad. Avro values need a reader."""
    places = [F.col(name).alias(ours) for name, ours in zip(_KAFKA, KAFKA_COLUMNS, strict=True)]
    # What is not needed further on is not carried from step to step.
    needed = records.select("key", "value", _row_id().alias(ROW_ID), *places)
    found = (read or _plain_reader(value))(needed)
    strange = [] if found.strange is None else [found.strange.alias(STRANGE)]
    return found.rows.select(
        *found.columns,
        ROW_ID,
        *KAFKA_COLUMNS,
        found.rescued.alias(RESCUED),
        found.problem.alias(REASON),
        F.col("key").alias(RAW[0]),
        F.col("value").cast("binary").alias(RAW[1]),  # a reader may have made it a text
        *strange,
    )


def refine(rows: "DataFrame", way: Way, lookup: "Callable[[Lookup], DataFrame]") -> "DataFrame":
    """Typed rows after all steps, judged by the expectations; each with its key and value."""
    return _judged(_after_steps(rows, way, lookup), way)


def _after_steps(
    rows: "DataFrame", way: Way, lookup: "Callable[[Lookup], DataFrame]"
) -> "DataFrame":
    for step in way.steps:
        if isinstance(step, Derive):
            rows = rows.withColumn(step.name, F.expr(step.expression))
        else:
            rows = rows.join(F.broadcast(_by_key(lookup(step), step, rows)), step.on, "left")
    return rows


def types_of(
    pipeline: Pipeline, lookup: "Callable[[Lookup], DataFrame]", spark: "SparkSession"
) -> StructType:
    """The columns that rows have after all steps, and their types."""
    places = dict(zip(KAFKA_COLUMNS, ("string", "int", "long", "timestamp"), strict=True))
    own = {field.column: field.type for field in pipeline.source.fields}
    types = own | {ROW_ID: "string", **places, RESCUED: "string"}
    rows = spark.range(0).select(*(nothing(type).alias(name) for name, type in types.items()))
    return _after_steps(rows, pipeline, lookup).schema


def _timed(rows: "DataFrame", pipeline: Pipeline) -> "DataFrame":
    """A time that a step made is bounded like one that was given: beyond it, the record is bad."""
    if pipeline.time is None or pipeline.time_is_given:
        return rows
    time = F.col(pipeline.time)
    odd = time.isNotNull() & bounded("timestamp", time).isNull()
    why = F.concat(F.lit(f"{pipeline.time} is no time that a clock could show: "), shown(time))
    return rows.withColumn(REASON, F.coalesce(F.col(REASON), F.when(odd, why)))


_KAFKA = ("topic", "partition", "offset", "timestamp")


def _by_key(table: "DataFrame", step: Lookup, rows: "DataFrame") -> "DataFrame":
    """A lookup's table with a key like the rows', each key once."""
    key = F.col(step.on).try_cast(rows.schema[step.on].dataType).alias(step.on)
    return table.select(key, *step.columns).dropna(subset=[step.on]).dropDuplicates([step.on])


def decoding_of(pipeline: Pipeline) -> str:
    """A fingerprint of all that decides which record becomes which row, or a dead letter."""
    return fingerprint(
        (pipeline.source.value, pipeline.time, pipeline.steps, pipeline.expectations)
    )


def _row_id() -> "Column":
    """The id that the sender gave, most often as the only header; else where the record is."""
    first = F.get("headers", F.lit(0))
    named = F.filter("headers", lambda header: header["key"] == ROW_HEADER)
    place = F.concat_ws(":", "topic", F.col("partition").cast("string"), F.col("offset"))
    given = F.when(first["key"] == ROW_HEADER, first["value"]).when(
        F.col("headers").isNotNull(), F.get(named, F.lit(0))["value"]
    )
    text = given.cast("string")
    # Bytes that are no text, a UUID's say, would make the column unreadable for others.
    return F.coalesce(F.when(F.is_valid_utf8(text), text).otherwise(F.hex(given)), place)


def unmet(number: int) -> str:
    """The column that says whether a row does not meet the pipeline's expectation."""
    return f"unmet:{number}"


def _judged(rows: "DataFrame", way: Way) -> "DataFrame":
    broken = [~F.coalesce(F.expr(e.condition), F.lit(False)) for e in way.expectations]
    causes, flags = [F.col(REASON)], []
    for number, expectation in enumerate(way.expectations):
        if expectation.action == "drop":
            why = F.lit(f"not as expected: {expectation.name}")
            causes.append(F.when(broken[number], why))
        else:
            flags.append((F.col(REASON).isNull() & broken[number]).alias(unmet(number)))
    return rows.withColumn(REASON, F.coalesce(*causes)).select("*", *flags)


def _with_few_bytes(rows: "DataFrame") -> "DataFrame":
    """Only bad records need their bytes again."""
    raw = {name: F.when(F.col(REASON).isNotNull(), F.col(name)) for name in RAW}
    return rows.withColumns(raw)
