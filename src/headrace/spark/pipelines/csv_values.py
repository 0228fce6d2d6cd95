"""CSV values, as Spark expressions.

A field that begins with a quote ends with one, and has others doubled; elsewhere a quote is a
character like any other. That is how `headrace ingest` reads files.
"""

import re
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.fields import Csv, Field
from headrace.spark.pipelines.texts import from_text
from headrace.spark.pipelines.values import NO_VALUE, NeedsNoSchemas, Read, nothing, wrong

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TEXT, _RAW, _FIELDS = "headrace:text", "headrace:raw", "headrace:fields"
_QUOTE = '"'
_MOST_PARTS = 10_000  # joining them takes time that grows with their square


class CsvReader(NeedsNoSchemas):
    """Reads rows of CSV. Its expressions are made once and serve all batches."""

    def __init__(self, value: Csv) -> None:
        self._value = value

    def __call__(self, records: "DataFrame") -> Read:
        """What is in the rows that these records are."""
        text, raw, fields, typed = self._steps
        rows = records.withColumn(_TEXT, text).withColumn(_RAW, raw).withColumn(_FIELDS, fields)
        return Read(rows.withColumns(typed), *self._found)

    @cached_property
    def _steps(self) -> "tuple[Column, Column, Column, dict[str, Column]]":
        text = _without_line_end(F.col("value").cast("string"))
        fields = enumerate(self._value.fields)
        typed = {_typed(n): from_text(field.type, _text(n)) for n, field in fields}
        return text, _split(self._value.separator), _unquoted(), typed

    @cached_property
    def _found(self) -> "tuple[list[Column], Column, Column]":
        fields = enumerate(self._value.fields)
        columns = [F.col(_typed(n)).alias(field.column) for n, field in fields]
        return columns, _rescued(self._value), _problem(self._value)


def _typed(number: int) -> str:
    return f"headrace:field{number}"


def _text(number: int) -> "Column":
    found = F.get(_FIELDS, F.lit(number))
    return F.when(found != "", found)


def _without_line_end(text: "Column") -> "Column":
    ended = text.endswith("\n") | text.endswith("\r")  # to trim each would be slow
    return F.when(ended, F.rtrim(text, F.lit("\r\n"))).otherwise(text)


def _has_quotes() -> "Column":
    return F.col(_TEXT).contains(_QUOTE)


def _split(separator: str) -> "Column":
    """The row at its separators; those in quotes are none, so what they took apart is joined."""
    parts = F.split(_TEXT, re.escape(separator))
    start = F.struct(
        F.array().cast("array<string>").alias("done"),
        nothing().alias("open"),
        F.lit(False).alias("odd"),
    )

    def add(row: "Column", part: "Column") -> "Column":
        field = F.when(row["open"].isNull(), part).otherwise(
            F.concat(row["open"], F.lit(separator), part)
        )
        odd = row["odd"] != _has_odd_quotes(part)
        still_open = odd & field.startswith(_QUOTE)
        done = F.when(still_open, row["done"]).otherwise(F.concat(row["done"], F.array(field)))
        return F.struct(
            done.alias("done"), F.when(still_open, field).alias("open"), still_open.alias("odd")
        )

    def finish(row: "Column") -> "Column":
        last = F.filter(F.array(row["open"]), lambda field: field.isNotNull())
        return F.concat(row["done"], last)

    to_join = _has_quotes() & (F.size(parts) <= _MOST_PARTS)
    return F.when(to_join, F.aggregate(parts, start, add, finish)).otherwise(parts)


def _has_odd_quotes(text: "Column") -> "Column":
    return (F.length(text) - F.length(F.replace(text, F.lit(_QUOTE), F.lit("")))) % 2 == 1


def _unquoted() -> "Column":
    def content(field: "Column") -> "Column":
        inner = F.replace(_inner(field), F.lit(_QUOTE * 2), F.lit(_QUOTE))
        return F.when(field.startswith(_QUOTE), inner).otherwise(field)

    return F.when(_has_quotes(), F.transform(_RAW, content)).otherwise(F.col(_RAW))


def _inner(field: "Column") -> "Column":
    return F.substr(field, F.lit(2), F.length(field) - 2)


def _rescued(value: Csv) -> "Column":
    """Fields beyond the declared ones, by number, as a JSON object."""
    if value.drift == "freeze":
        return nothing()
    known, found = len(value.fields), F.size(_FIELDS)
    numbers = F.transform(F.sequence(F.lit(known + 1), found), lambda n: n.cast("string"))
    more = F.slice(_FIELDS, F.lit(known + 1), found)
    return F.when(found > known, F.to_json(F.map_from_arrays(numbers, more)))


def _problem(value: Csv) -> "Column":
    """Why a record is bad, the first cause; null if it is good."""
    found, known = F.size(_FIELDS), len(value.fields)
    wrong_count = found < known if value.drift == "rescue" else found != known
    count = F.concat(F.lit("the row has "), found.cast("string"), F.lit(f" fields, not {known}"))
    return F.coalesce(
        F.when(F.col("value").isNull(), F.lit(NO_VALUE)),
        F.when(~F.is_valid_utf8(_TEXT), F.lit("the value is not UTF-8")),
        F.when(
            _has_quotes() & (F.size(_RAW) > _MOST_PARTS),
            F.lit(f"the row has quotes and more than {_MOST_PARTS:,} separators"),
        ),
        F.when(
            _has_quotes() & F.exists(_RAW, _is_misquoted),
            F.lit("a quote is misplaced or has no end"),
        ),
        F.when(_has_lines(), F.lit("the value has more than one row")),
        F.when(wrong_count, count),
        *(cause for number, field in enumerate(value.fields) for cause in _causes(number, field)),
    )


def _is_misquoted(field: "Column") -> "Column":
    """Whether a quoted field has no end, goes on after it, or has a lone quote in it."""
    ends = (F.length(field) >= 2) & field.endswith(_QUOTE)
    lone = F.replace(_inner(field), F.lit(_QUOTE * 2), F.lit("")).contains(_QUOTE)
    return field.startswith(_QUOTE) & (~ends | lone)


def _has_lines() -> "Column":
    """Whether there is a line end outside quotes."""

    def ends_line(text: "Column") -> "Column":
        return text.contains("\n") | text.contains("\r")

    return ends_line(F.col(_TEXT)) & F.exists(
        _RAW, lambda field: ~field.startswith(_QUOTE) & ends_line(field)
    )


def _causes(number: int, field: Field) -> "list[Column]":
    text, unread = _text(number), F.col(_typed(number)).isNull()
    empty = F.lit(f"{field.field} is empty") if field.required else nothing()
    if field.type == "string":
        return [F.when(unread, empty)] if field.required else []
    return [F.when(unread, F.when(text.isNull(), empty).otherwise(wrong(field, text)))]
