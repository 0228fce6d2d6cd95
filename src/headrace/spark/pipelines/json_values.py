"""JSON values, as Spark expressions."""

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from headrace.spark.pipelines.fields import TIME, Field, Json
from headrace.spark.pipelines.values import NO_VALUE, Read, bounded, missing, nothing, wrong

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT = "headrace:corrupt"
_PARSED, _TEXT, _UNKNOWN = "headrace:parsed", "headrace:text", "headrace:unknown"
_STRICT = {
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def read(records: "DataFrame", value: Json) -> Read:
    """What is in the JSON objects of these records."""
    return Read(
        _parsed(records, value),
        [_typed(field).alias(field.column) for field in value.fields],
        _rescued(value),
        _problem(value),
    )


def _parsed(records: "DataFrame", value: Json) -> "DataFrame":
    text = F.col("value").cast("string")
    known = F.array(*(F.lit(field.field) for field in value.fields))
    keys = F.json_object_keys(_TEXT)
    unknown = F.when(_may_have_more(value), F.array_except(keys, known))
    return (
        records.withColumn(_TEXT, text)
        .withColumn(_PARSED, F.from_json(_TEXT, _schema(value), _STRICT))
        .withColumn(_UNKNOWN, unknown)
    )


def _may_have_more(value: Json) -> "Column":
    """Whether there may be fields that are not declared: reading all keys takes its time.

    Every key has a colon. With as many colons as declared fields were found, there is no other key.
    """
    found = (F.when(_raw(field).isNotNull(), 1).otherwise(0) for field in value.fields)
    without = F.octet_length(F.replace(F.col(_TEXT), F.lit(":"), F.lit("")))
    return F.octet_length(_TEXT) - without != reduce(add, found)


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
    return bounded(field.type, _raw(field))


def _rescued(value: Json) -> "Column":
    """Fields that the definition does not know, as a JSON object."""
    if value.drift == "freeze":
        return nothing()
    everything = F.from_json(_TEXT, "map<string,string>")
    unknown = F.map_filter(everything, lambda name, _: F.array_contains(_UNKNOWN, name))
    return F.when(F.size(_UNKNOWN) > 0, F.to_json(unknown))


def _problem(value: Json) -> "Column":
    """Why a record is bad, the first cause; null if it is good."""
    trimmed = F.trim(F.col(_TEXT), F.lit(" \t\r\n"))  # slow, and seldom needed
    is_object = _is_in_braces(F.col(_TEXT)) | _is_in_braces(trimmed)
    causes = [
        F.when(F.col("value").isNull(), F.lit(NO_VALUE)),
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
        causes.append(F.when(_raw(field).isNull() & given.isNotNull(), wrong(field, given)))
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
        causes.append(F.when(found.isNull(), missing(field)))
    if field.type in (TIME, "timestamp", "date"):
        odd = found.isNotNull() & _typed(field).isNull()
        causes.append(F.when(odd, wrong(field, found)))
    return causes
