"""What all kinds of values have in common: what reading them gives, and when a time is one."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.fields import TIME, Field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SHOWN_CHARACTERS = 100
# Milliseconds of the years 1900 to 9000. What is beyond is a count of another unit, and neither
# Python nor arithmetic on times could bear it.
_OLDEST_MS, _NEWEST_MS = -2_208_988_800_000, 221_845_392_000_000
_OLDEST_YEAR, _NEWEST_YEAR = 1900, 9000
NO_VALUE = "the value is null"


@dataclass(frozen=True)
class Read:
    """Records with columns to help, and what is in their values as expressions on these: a column
    for each field, fields that nobody declared as a JSON object, and why a record is bad.

    `strange` is the number of the schema that a record was not read for want of, if a reader goes
    by schemas.
    """

    rows: "DataFrame"
    columns: "list[Column]"
    rescued: "Column"
    problem: "Column"
    strange: "Column | None" = None


class Reader(Protocol):
    """What reads values. Records that were strange are read again once their schemas are learned:
    most batches have none, and so nobody looks for them before."""

    def __call__(self, records: "DataFrame") -> Read: ...

    def learn(self, schemas: Collection[int], spark: "SparkSession") -> bool:
        """Whether records of any of these can be read now."""
        ...

    @property
    def context(self) -> str:
        """What decides how a record is read that is neither in it nor in the definition."""
        ...


class NeedsNoSchemas:
    """A reader to which nothing is strange."""

    context = ""

    def learn(self, _schemas: Collection[int], _spark: "SparkSession") -> bool:
        return False


def bounded(type: str, found: "Column") -> "Column":
    """A time, timestamp or date, null if no clock could show it; a time is a count of milliseconds
    before."""
    if type == TIME:
        return F.when(found.between(_OLDEST_MS, _NEWEST_MS), F.timestamp_millis(found))
    if type in ("timestamp", "date"):
        return F.when(F.year(found).between(_OLDEST_YEAR, _NEWEST_YEAR), found)
    return found


def wrong(field: Field, found: "Column") -> "Column":
    """The reason why a field is not of its type, with what is there."""
    return F.concat(F.lit(f"{field.field} is no {field.type}: "), shown(found))


def shown(found: "Column") -> "Column":
    return F.make_valid_utf8(F.substring(found.cast("string"), 1, SHOWN_CHARACTERS))


def missing(field: Field) -> "Column":
    return F.lit(f"{field.field} is missing or null")


def nothing(type: str = "string") -> "Column":
    """Null, as the type of a field."""
    return F.lit(None).cast("timestamp" if type == TIME else type)
