"""Columns as Spark expressions: what a file has (c0 to cN), with the types of the schema.

In CSV all of it is text, and what is empty is null. In JSON lines null is null, "" is a text, and
numbers and truth values come as such.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.ingest.formats import Format
from headrace.spark.ingest.schema import Column, ColumnType

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression

SHOWN_CHARACTERS = 100
LARGEST_FLOAT = 3.4028234663852886e38
_LARGEST_DOUBLE = 1.7976931348623157e308
# Spark takes more for a number: 1d, 0x1p3, NaN, Infinity.
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_NOUNS: dict[ColumnType, str] = {
    "long": "whole number",
    "int": "whole number of 32 bits",
    "double": "number",
    "float": "number of 32 bits",
    "boolean": "true or false",
    "time": "time",
    "date": "date",
    "enum": "known value",
}


def typed(column: Column, found: "Expression", format: Format) -> "Expression":
    """A column with its type; null if it is nothing, or not of that type."""
    filled = F.when(found != "", found) if format == "csv" else found
    if column.type in ("time", "date"):
        return _moment(column, filled)
    if column.type == "long":
        return filled.try_cast("bigint")
    if column.type == "int":
        return filled.try_cast("int")
    if column.type in ("double", "float"):
        return number_in(filled, column.type) if format == "csv" else _bounded(filled, column.type)
    if column.type == "boolean":
        text = F.lower(filled.cast("string"))
        return F.when(text.isin("true", "false"), text == "true")
    return F.when(filled.isin(*column.values), filled) if column.type == "enum" else filled


def number_in(text: "Expression", type: str) -> "Expression":
    """A double or float that is written in decimal digits; null for any other text."""
    return _bounded(F.when(text.rlike(_NUMBER), text), type)


def _bounded(found: "Expression", type: str) -> "Expression":
    """As a float, what is too large would be infinite."""
    number = found.try_cast("double")
    largest = LARGEST_FLOAT if type == "float" else _LARGEST_DOUBLE
    return F.when(F.abs(number) <= largest, number.cast(type))


def _moment(column: Column, filled: "Expression") -> "Expression":
    if column.is_counted_time:
        return filled.try_cast("bigint")
    moment = F.try_to_timestamp(filled, F.lit(column.format))
    if column.type == "date":
        return moment.cast("date")
    return F.unix_micros(moment) if column.unit == "micros" else F.unix_millis(moment)


def problem(
    column: Column, found: "Expression", result: "Expression", format: Format
) -> "Expression":
    """What is wrong with a column of a row, or null. `result` is what `typed` made of it."""
    nothing, said = found == "", "is empty"
    if format == "jsonl":
        nothing, said = found.isNull(), "is missing or null"
    missing = F.lit(f"{column.name} {said}") if column.required else F.lit(None)
    if column.type == "string":
        return F.when(nothing, missing)
    shown = F.substring(found.cast("string"), 1, SHOWN_CHARACTERS)
    wrong = F.concat(F.lit(f"{column.name} is no {_NOUNS[column.type]}: "), shown)
    return F.when(result.isNull(), F.when(nothing, missing).otherwise(wrong))


def milliseconds(column: Column, result: "Expression") -> "Expression":
    """A time as the timestamp of a record."""
    return F.unix_millis(F.timestamp_micros(result)) if column.unit == "micros" else result
