"""Records to typed rows, as Spark expressions: no row passes through Python.

A bad record keeps its key and value and has a reason; a good one has its columns, and null there.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from headrace.spark.columns import ROW_HEADER
from headrace.spark.pipelines.definition import (
    KAFKA_COLUMNS,
    RESCUED,
    ROW_ID,
    TIME,
    Derive,
    Field,
    Json,
    Lookup,
    Pipeline,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

# No name of a user's has a colon.
REASON = "headrace:reason"
RAW = ("headrace:key", "headrace:value")
SHOWN_CHARACTERS = 100
_CORRUPT = "headrace:corrupt"
_PARSED, _TEXT, _UNKNOWN = "headrace:parsed", "headrace:text", "headrace:unknown"


def decode(
    records: "DataFrame", pipeline: Pipeline, lookup: "Callable[[Lookup], DataFrame]"
) -> "DataFrame":
    """Rows with the pipeline's columns, a reason where a record is bad, and a column `unmet:N` for
    each expectation that only warns or fails."""
    value = pipeline.source.value
    rows = _parsed(records, value)
    rows = rows.select(
        *(_typed(field) for field in value.fields),
        _row_id().alias(ROW_ID),
        *(F.col(name).alias(ours) for name, ours in zip(_KAFKA, KAFKA_COLUMNS, strict=True)),
        _rescued(value).alias(RESCUED),
        _problem(value).alias(REASON),
        F.col("key").alias(RAW[0]),
        F.col("value").alias(RAW[1]),
    )
    for step in pipeline.steps:
        if isinstance(step, Derive):
            rows = rows.withColumn(step.name, F.expr(step.expression))
        else:
            rows = rows.join(F.broadcast(_by_key(lookup(step), step, rows)), step.on, "left")
    return _judged(rows, pipeline)


_KAFKA = ("topic", "partition", "offset", "timestamp")


def _by_key(table: "DataFrame", step: Lookup, rows: "DataFrame") -> "DataFrame":
    """A lookup's table with a key like the rows', each key once."""
    key = F.col(step.on).try_cast(rows.schema[step.on].dataType).alias(step.on)
    return table.select(key, *step.columns).dropna(subset=[step.on]).dropDuplicates([step.on])


def _parsed(records: "DataFrame", value: Json) -> "DataFrame":
    text = F.col("value").cast("string")
    known = F.array(*(F.lit(field.field) for field in value.fields))
    keys = F.json_object_keys(_TEXT)
    # Most records have all fields in their order, which is soon seen.
    unknown = F.when(keys != known, F.array_except(keys, known))
    return (
        records.withColumn(_TEXT, text)
        .withColumn(_PARSED, F.from_json(_TEXT, _schema(value), _STRICT))
        .withColumn(_UNKNOWN, unknown)
    )


_STRICT = {
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
# Milliseconds of the years 1900 to 9000. What is beyond is a count of another unit, and neither
# Python nor arithmetic on times could bear it.
_OLDEST_MS, _NEWEST_MS = -2_208_988_800_000, 221_845_392_000_000


def _schema(value: Json) -> StructType:
    fields = [
        StructField(
            field.field,
            _parse_datatype_string("long" if field.type == TIME else field.type),
        )
        for field in value.fields
    ]
    return StructType([*fields, StructField(_CORRUPT, StringType())])


def _raw(field: Field) -> "Column":
    return F.col(_PARSED).getField(field.field)


def _typed(field: Field) -> "Column":
    found = _raw(field)
    if field.type == TIME:
        found = F.when(found.between(_OLDEST_MS, _NEWEST_MS), F.timestamp_millis(found))
    elif field.type in ("timestamp", "date"):
        found = F.when(F.year(found).between(1900, 9000), found)
    return found.alias(field.column)


def _row_id() -> "Column":
    """The id that the sender gave, most often as the only header; else where the record is."""
    first = F.get("headers", F.lit(0))
    named = F.filter("headers", lambda header: header["key"] == ROW_HEADER)
    place = F.concat_ws(":", "topic", F.col("partition").cast("string"), F.col("offset"))
    return F.coalesce(
        F.when(first["key"] == ROW_HEADER, first["value"])
        .when(F.col("headers").isNotNull(), F.get(named, F.lit(0))["value"])
        .cast("string"),
        place,
    )


def _rescued(value: Json) -> "Column":
    """Fields that the definition does not know, as a JSON object."""
    if value.drift == "freeze":
        return F.lit(None).cast("string")
    everything = F.from_json(_TEXT, "map<string,string>")
    unknown = F.map_filter(everything, lambda name, _: F.array_contains(_UNKNOWN, name))
    return F.when(F.size(_UNKNOWN) > 0, F.to_json(unknown))


def _problem(value: Json) -> "Column":
    """Why a record is bad, the first cause; null if it is good."""
    trimmed = F.trim(F.col(_TEXT), F.lit(" \t\r\n"))  # slow, and seldom needed
    is_object = _is_in_braces(F.col(_TEXT)) | _is_in_braces(trimmed)
    causes = [
        F.when(F.col("value").isNull(), F.lit("the value is null")),
        F.when(~F.is_valid_utf8(_TEXT), F.lit("the value is not UTF-8")),
        F.when(~is_object, F.lit("the value is no JSON object")),
        F.when(_corrupt(), F.coalesce(*_wrong_fields(value), F.lit("the value is not JSON"))),
        F.when(~_is_one(), F.lit("something follows the JSON object")),
        *(cause for field in value.fields for cause in _causes(field)),
    ]
    if value.drift == "freeze":
        unknown = F.concat(F.lit("unknown fields: "), F.array_join(_UNKNOWN, ", "))
        causes.append(F.when(F.size(_UNKNOWN) > 0, unknown))
    return F.coalesce(*causes)


def _corrupt() -> "Column":
    return F.col(_PARSED).getField(_CORRUPT).isNotNull()


def _wrong_fields(value: Json) -> "list[Column]":
    """Fields that are there, but did not become what they should be."""
    causes = []
    for field in value.fields:
        given = F.get_json_object(_TEXT, f"$['{field.field}']")
        shown = F.substring(given, 1, SHOWN_CHARACTERS)
        wrong = F.concat(F.lit(f"{field.field} is no {field.type}: "), shown)
        causes.append(F.when(_raw(field).isNull() & given.isNotNull(), wrong))
    return causes


def _is_in_braces(text: "Column") -> "Column":
    return text.startswith("{") & text.endswith("}")


def _is_one() -> "Column":
    """Whether there is one object and nothing after it: Spark would read the first, and no more.

    An object whose first closing brace is the last character is one; of others, all is parsed.
    """
    before = F.octet_length(F.substring_index(_TEXT, "}", 1))
    parsed = F.from_json(F.concat(F.lit("["), _TEXT, F.lit("]")), "array<string>")
    simple = before + 1 == F.octet_length(_TEXT)
    return simple | F.coalesce(F.size(parsed) == 1, F.lit(False))


def _causes(field: Field) -> "list[Column]":
    found, causes = _raw(field), []
    if field.required:
        causes.append(F.when(found.isNull(), F.lit(f"{field.field} is missing or null")))
    if field.type in (TIME, "timestamp", "date"):
        wrong = F.concat(F.lit(f"{field.field} is no {field.type}: "), found.cast("string"))
        causes.append(F.when(found.isNotNull() & _typed(field).isNull(), wrong))
    return causes


def unmet(number: int) -> str:
    """The column that says whether a row does not meet the pipeline's expectation."""
    return f"unmet:{number}"


def _judged(rows: "DataFrame", pipeline: Pipeline) -> "DataFrame":
    broken = [~F.coalesce(F.expr(e.condition), F.lit(False)) for e in pipeline.expectations]
    causes, flags = [F.col(REASON)], []
    for number, expectation in enumerate(pipeline.expectations):
        if expectation.action == "drop":
            why = F.lit(f"not as expected: {expectation.name}")
            causes.append(F.when(broken[number], why))
        else:
            flags.append((F.col(REASON).isNull() & broken[number]).alias(unmet(number)))
    rows = rows.withColumn(REASON, F.coalesce(*causes))
    # Only bad records need their bytes again.
    raw = [F.when(F.col(REASON).isNotNull(), F.col(name)).alias(name) for name in RAW]
    others = [F.col(name) for name in rows.columns if name not in RAW]
    return rows.select(*others, *raw, *flags)
