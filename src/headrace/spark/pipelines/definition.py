"""What a pipeline is, as plain data: where records come from, what must hold, what they become.

>>> from headrace.spark.pipelines import Count, Field, Json, Pipeline, Rows, Topic, Totals
>>> clicks = Pipeline(
...     "clicks",
...     source=Topic("clicks", Json(Field("page", "string", required=True), Field("at", "time"))),
...     rows=Rows("clicks"),
...     time="at",
...     derived=(Totals("pages", by={"page": "page"}, measures={"clicks": Count()}),),
... )
>>> [table.name for table in clicks.tables]
['clicks', 'pages']

Nothing here needs Spark or a cluster: a definition that is wrong is refused when it is made, and
`headrace.spark.pipelines.runner` runs the others. Conditions and expressions are Spark SQL.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from headrace.errors import ConfigError
from headrace.spark.pipelines.checks import check_name, is_decimal, refuse_twins
from headrace.spark.pipelines.fields import RESERVED, TIME, Field, Value

if TYPE_CHECKING:
    from headrace.spark.pipelines.forward_definition import Forward

_TIMES = (TIME, "timestamp", "date")
_SPAN = re.compile(r"[1-9]\d* (second|minute|hour|day)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}

DEAD_LETTERS = "dead_letters"

Action = Literal["warn", "drop", "fail"]


def seconds(span: str) -> int:
    """A span of time in seconds.

    >>> seconds("30 minutes")
    1800
    """
    if not _SPAN.fullmatch(span):
        raise ConfigError(f"{span!r} is no span of time", hint="like '30 minutes' or '1 day'")
    count, unit = span.split(" ")
    return int(count) * _SECONDS[unit.rstrip("s")]


# --- where records come from ---


@dataclass(frozen=True)
class Topic:
    """Records of a topic, and what their values are; `also` are topics with values of the same
    shape, read in the same query.

    >>> from headrace.spark.pipelines import Field, Json
    >>> Topic("alerts", Json(Field("level")), also=("audit",)).names
    ('alerts', 'audit')
    """

    name: str
    value: Value
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_twins("a source has two topics", list(self.names))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.value.fields


# --- what must hold ---


@dataclass(frozen=True)
class Expect:
    """A condition that each row must meet; one that is null is not met.

    `drop` makes the record a dead letter, `warn` only counts it, `fail` stops the pipeline before
    anything of the batch is written.
    """

    name: str
    condition: str
    action: Action = "drop"

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise ConfigError(
                f"expectation {self.name!r} has action {self.action!r}",
                hint=f"one of {', '.join(get_args(Action))}",
            )


# --- what becomes of rows on their way ---


@dataclass(frozen=True)
class Derive:
    """A column computed from others."""

    name: str
    expression: str

    def __post_init__(self) -> None:
        check_name("derived column", self.name)


@dataclass(frozen=True)
class Lookup:
    """Columns of a small table, by key; rows without a match have nulls there.

    `path` is a file or folder that Spark reads as `format`; it is read anew after `refresh`.
    """

    path: str
    on: str
    columns: tuple[str, ...]
    format: Literal["csv", "json", "parquet", "delta"] = "csv"
    refresh: str = "10 minutes"

    def __post_init__(self) -> None:
        seconds(self.refresh)
        for name in (self.on, *self.columns):
            check_name("lookup column", name)


Step = Derive | Lookup

# --- what they become ---


@dataclass(frozen=True)
class Count:
    """How many rows; with `where`, those that meet it."""

    where: str | None = None


@dataclass(frozen=True)
class Sum:
    """The sum of an expression, exact: a decimal, or a whole number."""

    expression: str
    where: str | None = None
    type: str = "decimal(18,2)"


@dataclass(frozen=True)
class Least:
    """The least value of an expression."""

    expression: str


@dataclass(frozen=True)
class Greatest:
    """The greatest value of an expression."""

    expression: str


Measure = Count | Sum | Least | Greatest


@dataclass(frozen=True)
class Rows:
    """Every row once: typed, without duplicates. `columns` picks some; else all are kept."""

    name: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Windows:
    """Windows of time: `length` long, a new one each `every` (else one after the other)."""

    length: str
    every: str | None = None

    def __post_init__(self) -> None:
        if seconds(self.length) < seconds(self.every or self.length):
            raise ConfigError(
                f"windows of {self.length} every {self.every} leave gaps",
                hint="a window must not be shorter than the step to the next",
            )


@dataclass(frozen=True)
class Totals:
    """Measures by key; each batch adds to them.

    With `windows`, also by window of time (columns window_start and window_end). With `late`, rows
    that are older than the newest one of earlier batches by more than this are not added: they are
    kept in table `NAME_late`, and counted.
    """

    name: str
    by: Mapping[str, str]
    measures: Mapping[str, Measure]
    where: str | None = None
    windows: Windows | None = None
    late: str | None = None

    def __post_init__(self) -> None:
        if not self.by and self.windows is None:
            raise ConfigError(f"totals {self.name!r} are by nothing", hint="by={'brand': 'brand'}")
        keys = [*self.by, *(("window_start", "window_end") if self.windows else ())]
        _check_measures(self.name, keys, self.measures)
        if self.late is not None:
            seconds(self.late)

    @property
    def late_name(self) -> str:
        return f"{self.name}_late"


@dataclass(frozen=True)
class Sessions:
    """Rows with the same key, until nothing came for `gap`: begin, end and measures of each.

    A row between two sessions that is near enough to both makes one of them.
    """

    name: str
    key: str
    gap: str
    measures: Mapping[str, Measure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seconds(self.gap)
        _check_measures(self.name, [self.key, "begin", "end", "gone"], self.measures)


@dataclass(frozen=True)
class Latest:
    """The newest row for each key, by time, then partition and offset; with `where`, of those rows
    that meet it."""

    name: str
    key: str
    columns: tuple[str, ...] = ()
    where: str | None = None


Derived = Totals | Sessions | Latest
Table = Rows | Derived


@dataclass(frozen=True)
class Pipeline:
    """From a topic to tables. `rows` is written last in each batch: with it, the batch counts.

    `realtime` is what real-time mode runs in place of the tables.
    """

    name: str
    source: Topic
    rows: Rows
    time: str | None = None
    steps: tuple[Step, ...] = ()
    expectations: tuple[Expect, ...] = ()
    derived: tuple[Derived, ...] = ()
    realtime: "Forward | None" = None

    def __post_init__(self) -> None:
        self._check_tables()
        check_way(self, self._wanted())
        if self.time is not None:
            self._check_time(self.time)
        refuse_twins(f"table {self.rows.name!r} has two columns", [*self.rows.columns, *RESERVED])

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.rows, *self.derived)

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of(self.source.fields, self.steps)

    @property
    def table_names(self) -> tuple[str, ...]:
        """Of all tables that it writes, those for what was late or bad among them."""
        late = [
            table.late_name for table in self.derived if isinstance(table, Totals) and table.late
        ]
        return (*(table.name for table in self.tables), *late, DEAD_LETTERS)

    def _check_tables(self) -> None:
        for table in self.tables:
            check_name("table", table.name)
        refuse_twins(f"pipeline {self.name!r} has two tables", list(self.table_names))
        for table in self.derived:
            timed = isinstance(table, Sessions | Latest) or table.windows or table.late
            if timed and self.time is None:
                raise ConfigError(
                    f"table {table.name!r} goes by time, but pipeline {self.name!r} has none",
                    hint="Pipeline(..., time='the column with the time')",
                )

    def _check_time(self, column: str) -> None:
        for one in self.source.value.fields:
            if one.column == column and one.type not in _TIMES:
                raise ConfigError(
                    f"pipeline {self.name!r} goes by {column!r}, a field of type {one.type}",
                    hint=f"types of time are {', '.join(_TIMES)}",
                )

    @property
    def time_is_given(self) -> bool:
        """Whether the time is in the value: then equal records have equal times."""
        return self.time in [field.column for field in self.source.value.fields]

    def _wanted(self) -> list[tuple[str, str]]:
        wanted = [("time", self.time)] if self.time else []
        wanted += [(f"table {self.rows.name}", column) for column in self.rows.columns]
        for table in self.derived:
            if isinstance(table, Sessions | Latest):
                wanted.append((f"table {table.name}", table.key))
            if isinstance(table, Latest):
                wanted += [(f"table {table.name}", column) for column in table.columns]
        return wanted


class Source(Protocol):
    """Where rows come from: a topic, or something else with declared fields."""

    @property
    def name(self) -> str: ...

    @property
    def fields(self) -> tuple[Field, ...]: ...


class Way(Protocol):
    """What all ways from a source have, whatever is at their end."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> Source: ...

    @property
    def steps(self) -> tuple[Step, ...]: ...

    @property
    def expectations(self) -> tuple[Expect, ...]: ...


def columns_of(fields: tuple[Field, ...], steps: tuple[Step, ...]) -> tuple[str, ...]:
    """All columns that expressions may name, Headrace's own among them."""
    own = [field.column for field in fields]
    for step in steps:
        own += [step.name] if isinstance(step, Derive) else step.columns
    return (*own, *RESERVED)


def check_way(way: Way, wanted: list[tuple[str, str]]) -> None:
    """Refuse what cannot be run; `wanted` has columns that must be there, and who needs them."""
    check_name("pipeline", way.name)
    columns = columns_of(way.source.fields, way.steps)
    refuse_twins(f"pipeline {way.name!r} has two columns", list(columns))
    refuse_twins(
        f"pipeline {way.name!r} has two expectations", [each.name for each in way.expectations]
    )
    lookups = [(f"lookup {step.path}", step.on) for step in way.steps if isinstance(step, Lookup)]
    for where, column in [*wanted, *lookups]:
        if column not in columns:
            raise ConfigError(
                f"pipeline {way.name!r}, {where}: there is no column {column!r}",
                hint=f"there are {', '.join(columns)}",
            )


def _check_measures(table: str, keys: list[str], measures: Mapping[str, Measure]) -> None:
    for name in keys:
        check_name(f"key of {table}", name)
    refuse_twins(f"table {table!r} has two columns", [*keys, *measures])
    for name, measure in measures.items():
        check_name(f"measure of {table}", name)
        if isinstance(measure, Sum) and measure.type != "long" and not is_decimal(measure.type):
            raise ConfigError(
                f"measure {name!r} of {table} is a sum of type {measure.type!r}",
                hint="decimal(P,S) or long: others are not exact when batches are added up",
            )
