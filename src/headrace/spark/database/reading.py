"""Reads a table of SQLite or PostgreSQL: what columns it has, what time it is there, its rows.

All that one `looking` sees is of one moment: the database's own snapshot.
"""

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from headrace.errors import BadInput, ConfigError, OperationFailed
from headrace.spark.database.addresses import Address
from headrace.spark.database.moments import Timestamp, iso, span_of
from headrace.spark.database.positions import Limits, Position, Row, Tracking, quoted

SECONDS_TO_CONNECT = 10
SECONDS_FOR_A_LOCK = 30.0
ROWS_AT_ONCE = 5_000
_NAMES_SHOWN = 10


@dataclass(frozen=True)
class Column:
    """A column as the database declares it."""

    name: str
    type: str
    may_be_null: bool


class Database(ABC):
    """An open connection to one table, within one snapshot."""

    def __init__(self, address: Address, table: str) -> None:
        self._address, self._table = address, table
        self.columns = self._columns()
        if not self.columns:
            tables = self._tables()
            names = ", ".join(tables[:_NAMES_SHOWN]) + (", ..." if tables[_NAMES_SHOWN:] else "")
            raise BadInput(
                f"there is no table {table!r} in {address}",
                hint=f"there are: {names}" if tables else "there is none at all",
            )

    @abstractmethod
    def _columns(self) -> list[Column]:
        """The table's columns; none if there is no such table."""

    @abstractmethod
    def _tables(self) -> list[str]:
        """The names of all tables."""

    @abstractmethod
    def now(self, tracking: Tracking) -> int:
        """The moment of this look by the database's own clock, in microseconds.

        Taken before the snapshot: whatever is committed by then is seen.
        """

    @abstractmethod
    def _select(self, text: str, parameters: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Rows as they come; the text has a ? for each parameter."""

    def raw(self, value: Any) -> Timestamp | None:
        """A timestamp as a position holds it."""
        if value is None or isinstance(value, str | int | float):
            return value
        raise BadInput(f"a timestamp is {value!r}, which is no time", hint="choose another column")

    def shown(self, value: Any) -> Any:
        """A tracked timestamp as it is sent."""
        return iso(value)

    @property
    def _from(self) -> str:
        return ".".join(map(quoted, self._table.split(".")))

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise BadInput(
            f"table {self._table!r} of {self._address} has no column {name!r}",
            hint=f"there are {', '.join(column.name for column in self.columns)}",
        )

    def newest(self, name: str) -> Any:
        """The greatest value of a column, or None."""
        (found,) = next(self._select(f"SELECT max({quoted(name)}) FROM {self._from}", ()))
        return found

    def newest_id(self, name: str) -> int:
        """The greatest whole number of a column, or 0 if there are no rows."""
        found = self.newest(name)
        return 0 if found is None else self._whole(found, name)

    def refuse_nulls(self, tracking: Tracking) -> None:
        """A row without a timestamp or id would never be seen."""
        for name in tracking.columns:
            if not self.column(name).may_be_null:
                continue
            text = f"SELECT 1 FROM {self._from} WHERE {quoted(name)} IS NULL LIMIT 1"
            if next(self._select(text, ()), None) is not None:
                raise BadInput(
                    f"table {self._table!r} of {self._address} has rows whose {name!r} is null: "
                    "they would never be seen",
                    hint=f"give them one, and declare {name!r} NOT NULL",
                )

    def rows(
        self, names: Sequence[str], tracking: Tracking, start: Position, limits: Limits
    ) -> Iterator[Row]:
        """The rows of one batch, in their order."""
        columns = [*names, *(name for name in tracking.columns if name not in names)]
        what = ", ".join(map(quoted, columns))
        rest, parameters = tracking.query(start, limits.rows)
        found = self._select(f"SELECT {what} FROM {self._from}{rest}", parameters)
        time = columns.index(str(tracking.timestamp)) if tracking.by_time else None
        id = columns.index(str(tracking.incrementing)) if tracking.by_id else None
        placed = (
            Row(
                values,
                None if time is None else self.raw(values[time]),
                None if id is None else self._whole(values[id], columns[id]),
            )
            for values in found
        )
        for row in tracking.take(placed, limits):
            values = list(row.values)
            if time is not None:
                values[time] = self.shown(values[time])
            yield row._replace(values=values[: len(names)])

    def _whole(self, value: Any, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadInput(
                f"column {name!r} of table {self._table!r} holds {value!r}, no whole number",
                hint="choose another column, or mode 'timestamp'",
            )
        return value


# --- SQLite ---


class _SQLite(Database):
    def __init__(self, address: Address, table: str, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # The snapshot begins with the first look at a table, which this is not.
        clock = connection.execute("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")
        self._now = span_of(clock.fetchone()[0]).begin
        super().__init__(address, table)
        connection.text_factory = _text_or_bytes  # for rows; names must be texts

    def _columns(self) -> list[Column]:
        found = self._connection.execute(
            'SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (self._table,)
        ).fetchall()
        alone = sum(bool(pk) for *_, pk in found) == 1
        return [
            # A whole number that is the primary key stands for the row's own number: never null.
            Column(name, kind, not needed and not (pk and alone and kind.upper() == "INTEGER"))
            for name, kind, needed, pk in found
        ]

    def _tables(self) -> list[str]:
        query = (
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
            "AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
        return [name for (name,) in self._connection.execute(query)]

    def now(self, tracking: Tracking) -> int:
        return self._now

    def _select(self, text: str, parameters: Sequence[Any]) -> Iterator[Sequence[Any]]:
        cursor = self._connection.execute(text, parameters)
        while some := cursor.fetchmany(ROWS_AT_ONCE):
            yield from some


def _text_or_bytes(stored: bytes) -> str | bytes:
    """SQLite takes any bytes for a text; those that are none must not stop the rows around them."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


@contextlib.contextmanager
def _looking_at_sqlite(address: Address, table: str) -> Iterator[Database]:
    path = address.path.expanduser()
    if not path.is_file():
        raise BadInput(
            f"there is no file {path}", hint="sqlite:///FILE in this folder, sqlite:////FILE else"
        )
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=SECONDS_FOR_A_LOCK,
            isolation_level=None,
        )
        with contextlib.closing(connection):
            connection.execute("BEGIN")
            yield _SQLite(address, table, connection)
    except sqlite3.Error as error:
        raise OperationFailed(
            f"{address} cannot be read: {error}", hint="is it a SQLite database, and free to read?"
        ) from error


# --- PostgreSQL ---

_WRONG_ADDRESS = "check the address; a password comes from PGPASSWORD or HEADRACE_DATABASE"
_WRONG_VALUE = "correct the value; or read a view that has it as text, or leaves it out"


class _PostgreSQL(Database):
    def __init__(self, address: Address, table: str, connection: Any) -> None:
        self._connection = connection
        super().__init__(address, table)

    def _columns(self) -> list[Column]:
        found = self._connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (self._from,),
        )
        return [Column(*row) for row in found]

    def _tables(self) -> list[str]:
        found = self._connection.execute(
            "SELECT CASE table_schema WHEN current_schema() THEN table_name "
            "ELSE table_schema || '.' || table_name END FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
        )
        return [name for (name,) in found]

    def now(self, tracking: Tracking) -> int:
        # A time without a zone is the server's local time, as its own now() becomes one.
        naive = tracking.timestamp and "without time zone" in self.column(tracking.timestamp).type
        # The transaction began at now().
        what = "now()::timestamp" if naive else "now()"
        (now,) = self._connection.execute(f"SELECT {what}").fetchone()
        return span_of(now).begin

    def _select(self, text: str, parameters: Sequence[Any]) -> Iterator[Sequence[Any]]:
        with self._connection.cursor(name="headrace") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(text.replace("?", "%s"), parameters)
            yield from cursor

    def raw(self, value: Any) -> Timestamp | None:
        if isinstance(value, datetime):
            return iso(value, naive=value.tzinfo is None)
        return super().raw(value)

    def shown(self, value: Any) -> Any:
        return iso(value, naive=isinstance(value, datetime) and value.tzinfo is None)


@contextlib.contextmanager
def _looking_at_postgresql(address: Address, table: str) -> Iterator[Database]:
    try:
        import psycopg
        from psycopg.types.json import set_json_loads

        from headrace.spark.database.loading import take_any_time
    except ImportError as error:
        raise ConfigError(
            f"PostgreSQL's driver is not installed ({error})",
            hint="pip install 'headrace[postgres]'",
        ) from error
    own: dict[str, Any] = {}
    if address.password is not None:
        own["password"] = address.password.get_secret_value()
    try:
        with psycopg.connect(
            address.url, connect_timeout=SECONDS_TO_CONNECT, application_name="headrace", **own
        ) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            set_json_loads(orjson.Fragment, connection)  # as it is, digit by digit
            take_any_time(connection)
            yield _PostgreSQL(address, table, connection)
    except psycopg.Error as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        hint = _WRONG_VALUE if isinstance(error, psycopg.DataError) else _WRONG_ADDRESS
        raise OperationFailed(f"{address} cannot be read: {lines[0]}", hint=hint) from error


def looking(address: Address, table: str) -> contextlib.AbstractContextManager[Database]:
    """The table as it is now, until the `with` block ends."""
    if address.kind == "sqlite":
        return _looking_at_sqlite(address, table)
    return _looking_at_postgresql(address, table)
