"""Rows of a database table as a source, as plain data; and the pipeline `invoices`.

>>> from headrace.spark.pipelines import DatabaseTable, Field, Forward
>>> orders = Forward(
...     "orders",
...     source=DatabaseTable(
...         "orders",
...         Field("number", "long", required=True),
...         Field("amount", "decimal(12,2)"),
...         Field("changed", "timestamp"),
...         incrementing="number",
...         timestamp="changed",
...     ),
...     to="orders",
...     key="number",
... )
>>> orders.columns_sent
('number', 'amount', 'changed')
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.config.profiles import find_profile_file, read_profiles
from headrace.errors import BadInput, ConfigError
from headrace.spark.database.addresses import EXAMPLES, Address
from headrace.spark.database.positions import Mode, Tracking, quoted
from headrace.spark.database.table import TableToRead
from headrace.spark.pipelines.definition import seconds
from headrace.spark.pipelines.fields import Field, Json
from headrace.spark.pipelines.forward_definition import Forward

DATABASE_VARIABLE = "HEADRACE_DATABASE"
DELAY = "5 seconds"


@dataclass(frozen=True, init=False)
class DatabaseTable:
    """New and changed rows of a table of SQLite or PostgreSQL.

    Fields are columns of the table. `mode` says how new rows are known: `incrementing` by a column
    whose value grows from row to row, `timestamp` by one with the time of the last change,
    `timestamp+incrementing` by both. A row is read when its timestamp is older than `delay`, for
    those that commit late; None is no delay. `url` is the database; else it is given when the
    pipeline runs.
    """

    table: str
    fields: tuple[Field, ...]
    url: str | None
    mode: Mode
    incrementing: str | None
    timestamp: str | None
    delay: str | None

    def __init__(
        self,
        table: str,
        *fields: Field,
        url: str | None = None,
        mode: Mode = "timestamp+incrementing",
        incrementing: str | None = "id",
        timestamp: str | None = "modified",
        delay: str | None = DELAY,
    ) -> None:
        given = (table, fields, url, mode, incrementing, timestamp, delay)
        for name, value in zip(self.__dataclass_fields__, given, strict=True):
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        if not self.table:
            raise ConfigError("a table without a name", hint="DatabaseTable('invoices', ...)")
        for name in (*self.table.split("."), *(field.field for field in self.fields)):
            quoted(name)
        Json(*self.fields)
        if self.url is not None:
            Address.parse(self.url, may_have_password=False)
        _ = self.tracking

    @property
    def name(self) -> str:
        return self.table

    @property
    def value(self) -> Json:
        """What a row is as JSON."""
        return Json(*self.fields)

    @property
    def tracking(self) -> Tracking:
        delay = 0.0 if self.delay is None else float(seconds(self.delay))
        return Tracking(self.mode, self.incrementing, self.timestamp, delay)

    def at(self, address: Address, rows_per_batch: int | None = None) -> TableToRead:
        """The table in a certain database."""
        columns = tuple(field.field for field in self.fields)
        return TableToRead(address, self.table, self.tracking, columns, rows_per_batch)


def sends_rows_as_they_are(forward: Forward) -> bool:
    """Whether nothing is added, left out or renamed: then the row's own JSON goes on, to the digit.

    >>> sends_rows_as_they_are(INVOICES)
    True
    """
    renamed = any(field.column != field.field for field in forward.source.fields)
    changed = forward.steps or forward.value or renamed
    return isinstance(forward.source, DatabaseTable) and not changed


def find_database(
    table: DatabaseTable,
    given: Address | None = None,
    environment: Mapping[str, str] = os.environ,
    folder: Path | None = None,
) -> Address:
    """Where a table's database is: as given, else by its definition, HEADRACE_DATABASE, or
    headrace.toml."""
    if given is not None:
        return given
    if table.url is not None:
        return Address.parse(table.url)
    if url := environment.get(DATABASE_VARIABLE):
        return Address.parse(url)
    file = find_profile_file(folder)
    setting = read_profiles(file).database if file else None
    if setting is None:
        raise BadInput(
            f"table {table.table!r}: no database is given",
            hint=f"--database {EXAMPLES}; or {DATABASE_VARIABLE}, or database in headrace.toml",
        )
    if isinstance(setting, str):
        return Address.parse(setting, may_have_password=False)
    return Address.parse(setting.read("database", environment).get_secret_value())


INVOICES = Forward(
    "invoices",
    source=DatabaseTable(
        "invoices",
        Field("id", "long", required=True),
        Field("title"),
        Field("details"),
        Field("billedamt", "decimal(18,2)"),
        Field("modified", "timestamp", required=True),
    ),
    to="invoices",
    key="id",
)
