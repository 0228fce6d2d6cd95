"""Text to typed columns, as Spark expressions: null if it is not of that type."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.ingest.columns import number_in
from headrace.spark.pipelines.fields import TIME
from headrace.spark.pipelines.values import bounded

if TYPE_CHECKING:
    from pyspark.sql import Column

# Spark takes more: 2019 as a date, 12:30 as a time of today.
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_MOMENT = r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}"


def from_text(type: str, text: "Column") -> "Column":
    """A text as a value of this type of field."""
    if type == "string":
        return text
    if type in ("double", "float"):
        return number_in(text, type)
    if type == "boolean":
        lower = F.lower(text)
        return F.when(lower.isin("true", "false"), lower == "true")
    if type == "binary":
        return F.try_to_binary(text, F.lit("base64"))  # as in JSON
    if type == "date":
        return bounded("date", F.when(text.rlike(_DATE), text.try_cast("date")))
    if type == "timestamp":
        return bounded("timestamp", _moment(text))
    if type == TIME:
        counted = bounded(TIME, text.try_cast("bigint"))
        return F.coalesce(counted, bounded("timestamp", _moment(text)))
    return text.try_cast(type)


def _moment(text: "Column") -> "Column":
    return F.when(text.rlike(_MOMENT), text.try_cast("timestamp"))
