"""Values that have a type already to the type of a field, as Spark expressions."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.spark.ingest.columns import LARGEST_FLOAT
from headrace.spark.pipelines.fields import TIME
from headrace.spark.pipelines.texts import from_text
from headrace.spark.pipelines.values import bounded, nothing

if TYPE_CHECKING:
    from pyspark.sql import Column

_INTEGRAL = (IntegerType, LongType)
_MOMENTS = (TimestampType, TimestampNTZType)


def converted(type: str, found: "Column", kind: DataType) -> "Column | None":
    """A value as the type of a field; None if values of this kind never are of that type. One that
    does not fit is null: nothing is cut off but decimal places."""
    if isinstance(kind, NullType):
        return nothing(type)
    if isinstance(kind, StringType):  # Avro's strings may hold any bytes
        return from_text(type, F.when(F.is_valid_utf8(found), found))
    if type == "string":
        return as_text(found, kind)
    if type == TIME and isinstance(kind, _INTEGRAL):
        return bounded(TIME, found.cast("bigint"))
    if type in (TIME, "timestamp") and isinstance(kind, _MOMENTS):
        return bounded("timestamp", found.cast("timestamp"))
    if type == "date" and isinstance(kind, DateType):
        return bounded("date", found)
    if isinstance(kind, NumericType):
        return _number(type, found, kind)
    same = {"boolean": BooleanType, "binary": BinaryType}.get(type)
    return found if same is not None and isinstance(kind, same) else None


def as_text(found: "Column", kind: DataType) -> "Column":
    """What is nested as JSON, bytes as base64."""
    if isinstance(kind, StructType | ArrayType | MapType):
        return F.to_json(found)
    text = F.base64(found) if isinstance(kind, BinaryType) else found.cast("string")
    return F.make_valid_utf8(text)


def _number(type: str, found: "Column", kind: NumericType) -> "Column | None":
    if type == "float" and not isinstance(kind, FloatType):
        number = found.cast("double")
        return F.when(F.abs(number) <= LARGEST_FLOAT, number.cast("float"))
    if type in ("long", "int"):
        return found.try_cast(type) if isinstance(kind, _INTEGRAL) else None
    exact = type in ("double", "float") or type.startswith("decimal")
    return found.try_cast(type) if exact else None
