"""JSON values, as Spark expressions."""

from functools import cached_property, reduce
from operator import add, or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from headrace.spark.pipelines.checks import is_decimal
from headrace.spark.pipelines.fields import TIME, Field, Json
from headrace.spark.pipelines.texts import from_text
from headrace.spark.pipelines.values import (
    NO_VALUE,
    NeedsNoSchemas,
    Read,
    bounded,
    missing,
    nothing,
    wrong,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT = "headrace:corrupt"
_PARSED = "headrace:parsed"
_STRICT = {
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
# Spark's parser would take more for one: 2019 for a date, 12:30 for a time of today.
_READ_AS_TEXT = ("string", "date", "timestamp")
_SECONDS = r"^\d{9,11}$"  # since 1970: of the years 1973 to 5138
_INFINITE = float("inf")
_NOT_IN_JSON = "\x00"  # where it is, Spark's parser calls a record corrupt
_REPLACED = "\ufffd"  # what stands for bytes that are no UTF-8 once a text was decoded


class JsonReader(NeedsNoSchemas):
    """Reads JSON objects. Its expressions are made once and serve all batches: each of their parts
    is a call to Spark, and there are thousands."""

    def __init__(self, value: Json) -> None:
        self._value = value

    def __call__(self, records: "DataFrame") -> Read:
        """What is in the values of these records."""
        # As a text the value is looked at where it lies; bytes are copied for each look.
        rows = records.withColumns({_PARSED: self._parsed, "value": _bytes_as_text()})
        return Read(rows, *self._found)

    @cached_property
    def _parsed(self) -> "Column":
        return F.from_json(_bytes_as_text(), _schema(self._value), _STRICT)

    @cached_property
    def _found(self) -> "tuple[list[Column], Column, Column]":
        columns = [_typed(field).alias(field.column) for field in self._value.fields]
        return columns, _rescued(self._value), _problem(self._value)


def _bytes_as_text() -> "Column":
    return F.col("value").cast("string")


def _text() -> "Column":
    """A value, once the reader has made it a text; its bytes are the same."""
    return F.col("value")


def _unknown(value: Json) -> "Column":
    """Names of fields that are not declared. Slow."""
    known = F.array(*(F.lit(field.field) for field in value.fields))
    return F.array_except(F.json_object_keys(_text()), known)


def _may_have_more(value: Json) -> "Column":
    """Whether there may be fields that are not declared: reading all keys takes its time.

    Every key but the first follows a comma. With one comma less than declared fields are there, or
    as many more as their texts have, there is no other key. It may say so wrongly, but never the
    contrary: where an escaped quote or comma or an object in the object could deceive, it says so.
    """
    parts = _parts(_text())
    keys = reduce(add, (F.when(_is_there(field), 1).otherwise(0) for field in value.fields))
    in_texts = [F.coalesce(_parts(_raw(field)) - 1, F.lit(0)) for field in _texts(value)]
    escapes = F.contains(_text(), F.lit("\\"))
    explained = (parts == keys) | (parts == reduce(add, in_texts, keys))
    return ~explained | escapes | ~_ends_with_its_first_brace()


def _parts(text: "Column") -> "Column":
    """How many parts a text has between its commas: one more than it has commas.

    Spark has no function that counts, but one that finds the place of an entry in such a list: of
    one that is put at the end, and cannot be in JSON. Unlike `split` it makes nothing on its way.
    """
    return F.find_in_set(F.lit(_NOT_IN_JSON), F.concat(text, F.lit(f",{_NOT_IN_JSON}"))) - 1


def _is_there(field: Field) -> "Column":
    """With a value, or null but named."""
    named = F.contains(_text(), F.lit(f'"{field.field}":'))
    return _raw(field).isNotNull() | named


def _texts(value: Json) -> list[Field]:
    return [field for field in value.fields if field.type in _READ_AS_TEXT]


def _schema(value: Json) -> StructType:
    fields = [
        StructField(field.field, _parse_datatype_string(_read_as(field))) for field in value.fields
    ]
    return StructType([*fields, StructField(_CORRUPT, StringType())])


def _read_as(field: Field) -> str:
    if field.type == TIME:
        return "long"
    return "string" if field.type in _READ_AS_TEXT else field.type


def _raw(field: Field) -> "Column":
    return F.col(_PARSED).getField(field.field)


def _typed(field: Field) -> "Column":
    found = _raw(field)
    if field.type not in _READ_AS_TEXT:
        return bounded(field.type, found)
    typed = from_text(field.type, found)
    if field.type != "timestamp":
        return typed
    counted = F.when(found.rlike(_SECONDS), F.timestamp_seconds(found.try_cast("long")))
    return F.coalesce(typed, counted)


def _rescued(value: Json) -> "Column":
    """Fields that the definition does not know, as a JSON object."""
    if value.drift == "freeze":
        return nothing()
    everything = F.from_json(_text(), "map<string,string>")
    known = [field.field for field in value.fields]
    rescued = F.map_filter(everything, lambda name, _: ~name.isin(known))
    return F.when(_may_have_more(value), F.when(F.size(_unknown(value)) > 0, F.to_json(rescued)))


def _problem(value: Json) -> "Column":
    """Why a record is bad, the first cause; null if it is good."""
    causes = [
        F.when(_is_suspicious(value), _wrong_with_the_whole(value)),
        *(cause for field in value.fields for cause in _causes(field)),
    ]
    if value.drift == "freeze":
        unknown = _unknown(value)
        said = F.concat(F.lit("unknown fields: "), F.array_join(unknown, ", "))
        causes.append(F.when(_may_have_more(value), F.when(F.size(unknown) > 0, said)))
    return F.coalesce(*causes)


def _is_suspicious(value: Json) -> "Column":
    """Whether a record needs a second look. One that does not is a JSON object, and in UTF-8: bytes
    that are none would be in a text that was read, or in a name that nobody declared."""
    bad_bytes = (F.contains(_raw(field), F.lit(_REPLACED)) for field in _texts(value))
    signs = [
        F.col("value").isNull(),
        ~_is_in_braces(_text()),
        _corrupt(),
        _may_have_more(value),
        *(F.coalesce(each, F.lit(False)) for each in bad_bytes),
    ]
    if any(field.type == "binary" for field in value.fields):
        signs.append(~F.is_valid_utf8(_text()))
    return reduce(or_, signs)


def _wrong_with_the_whole(value: Json) -> "Column":
    trimmed = F.trim(_text(), F.lit(" \t\r\n"))
    is_object = _is_in_braces(_text()) | _is_in_braces(trimmed)
    return F.coalesce(
        F.when(F.col("value").isNull(), F.lit(NO_VALUE)),
        F.when(~F.is_valid_utf8(_text()), F.lit("the value is not UTF-8")),
        F.when(~is_object, F.lit("the value is no JSON object")),
        F.when(_corrupt(), F.coalesce(*_wrong_fields(value), F.lit("the value is not JSON"))),
        F.when(~_is_one(), F.lit("something follows the JSON object")),
        *(_with_commas(field) for field in value.fields if is_decimal(field.type)),
    )


def _with_commas(field: Field) -> "Column":
    """Spark leaves commas out of the text of a decimal: "1,50" would be 150. A comma that divides
    no fields makes a record suspicious, so it is looked for nowhere else."""
    given = F.get_json_object(_text(), f"$['{field.field}']")
    return F.when(F.contains(given, F.lit(",")), wrong(field, given))


def _corrupt() -> "Column":
    return F.col(_PARSED).getField(_CORRUPT).isNotNull()


def _wrong_fields(value: Json) -> "list[Column]":
    """Fields that are there, but did not become what they should be."""
    causes = []
    for field in value.fields:
        given = F.get_json_object(_text(), f"$['{field.field}']")
        causes.append(F.when(_raw(field).isNull() & given.isNotNull(), wrong(field, given)))
    return causes


def _is_in_braces(text: "Column") -> "Column":
    return text.startswith("{") & text.endswith("}")


def _ends_with_its_first_brace() -> "Column":
    """Then nothing can follow the object. On bytes, which takes a tenth of the time of texts."""
    value = _text().cast("binary")
    before = F.substring(value, F.lit(1), F.octet_length(_text()) - 1)
    return ~F.contains(before, F.lit(b"}"))


def _is_one() -> "Column":
    """Whether there is one object and nothing after it: Spark would read the first, and no more."""
    parsed = F.from_json(F.concat(F.lit("["), _text(), F.lit("]")), "array<string>")
    return _ends_with_its_first_brace() | F.coalesce(F.size(parsed) == 1, F.lit(False))


def _causes(field: Field) -> "list[Column]":
    found, causes = _raw(field), []
    if field.required:
        causes.append(F.when(found.isNull(), missing(field)))
    if field.type in (TIME, "timestamp", "date"):
        odd = found.isNotNull() & _typed(field).isNull()
        causes.append(F.when(odd, wrong(field, found)))
    if field.type in ("double", "float"):
        causes.append(F.when(F.abs(found) == F.lit(_INFINITE), wrong(field, found)))
    return causes
