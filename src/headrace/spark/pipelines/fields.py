"""What is in a record's value, as plain data: its fields, and how they are written.

>>> Json(Field("page", required=True), Field("at", "time")).fields[1].column
'at'
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from headrace.errors import ConfigError
from headrace.spark.pipelines.checks import check_name, is_decimal, refuse_twins

# A time is a count of milliseconds since 1970 in JSON, and a timestamp in the table.
TIME = "time"
SIMPLE_TYPES = (
    *("string", "long", "int", "double", "float", "boolean", "binary", "date", "timestamp"),
    TIME,
)

# Columns that every table of rows has besides its own.
ROW_ID = "row_id"
KAFKA_COLUMNS = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_time")
RESCUED = "rescued"
RESERVED = (ROW_ID, *KAFKA_COLUMNS, RESCUED)

Drift = Literal["rescue", "freeze", "evolve"]


@dataclass(frozen=True)
class Field:
    """A field of the value; `name` is its column, else the field's own name."""

    field: str
    type: str = "string"
    name: str = ""
    required: bool = False

    def __post_init__(self) -> None:
        if self.type not in SIMPLE_TYPES and not is_decimal(self.type):
            raise ConfigError(
                f"field {self.field!r} has type {self.type!r}",
                hint=f"types are {', '.join(SIMPLE_TYPES)} and decimal(P,S), P up to 38",
            )
        check_name("field", self.column)
        if "'" in self.field:
            raise ConfigError(f"a field is called {self.field!r}", hint="without quotes")
        if self.column.lower() in RESERVED:
            raise ConfigError(
                f"a field is called {self.column!r}, as one of Headrace's own columns",
                hint="give it another name: Field(..., name='...')",
            )

    @property
    def column(self) -> str:
        return self.name or self.field


@dataclass(frozen=True, init=False)
class _Object:
    """Fields that are found by name."""

    fields: tuple[Field, ...]
    drift: Drift

    def __init__(self, *fields: Field, drift: Drift = "rescue") -> None:
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "drift", drift)
        _check_fields(fields)
        _check_drift(drift, get_args(Drift))


@dataclass(frozen=True, init=False)
class Json(_Object):
    """Values are JSON objects with these fields.

    `drift` says what becomes of other fields: `rescue` keeps them as JSON in column `rescued`,
    `freeze` makes the record a dead letter, `evolve` gives each a column of its own, as text.
    """


@dataclass(frozen=True, init=False)
class Csv:
    """Values are rows of CSV with these fields, in this order; an empty one is null.

    A time is a count of milliseconds, or written like 2019-10-01 00:00:00 UTC. `drift` says what
    becomes of more fields: `freeze` makes the record a dead letter, because a quote that is missing
    looks the same; `rescue` keeps them by their number as JSON in column `rescued`.
    """

    fields: tuple[Field, ...]
    separator: str
    drift: Drift

    def __init__(self, *fields: Field, separator: str = ",", drift: Drift = "freeze") -> None:
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "separator", separator)
        object.__setattr__(self, "drift", drift)
        _check_fields(fields)
        # A field of a row has no name that a column could get.
        _check_drift(drift, ("rescue", "freeze"))
        if len(separator) != 1 or separator in '"\r\n':
            raise ConfigError(
                f"the separator is {separator!r}", hint="one character, no quote and no line end"
            )


@dataclass(frozen=True, init=False)
class Avro(_Object):
    """Values are Avro records with these fields, each with the id of its schema in the registry.

    Each record is read with the schema it was written with. What that one lacks has the default of
    the topic's newest schema (subject `TOPIC-value`), else it is null. `drift` is as for JSON.
    """


Value = Json | Csv | Avro
ValueKind = Literal["json", "csv", "avro"]
_KINDS: Mapping[ValueKind, type[Value]] = {"json": Json, "csv": Csv, "avro": Avro}


def value_as(value: Value, kind: ValueKind) -> Value:
    """The same fields in values of another kind.

    >>> value_as(Json(Field("page")), "avro")
    Avro(fields=(Field(field='page', type='string', name='', required=False),), drift='rescue')
    """
    made = _KINDS[kind]
    return value if isinstance(value, made) else made(*value.fields, drift=value.drift)


def _check_fields(fields: tuple[Field, ...]) -> None:
    if not fields:
        raise ConfigError("a value without fields", hint="Json(Field('page'), ...)")
    refuse_twins("a value has two fields", [field.field for field in fields])


def _check_drift(drift: str, known: tuple[str, ...]) -> None:
    if drift not in known:
        raise ConfigError(f"drift is {drift!r}", hint=f"one of {', '.join(known)}")
