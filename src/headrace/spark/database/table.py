"""Which rows of which table: what the source needs to know, and a first look at it."""

from dataclasses import dataclass

import orjson

from headrace.errors import BadInput
from headrace.spark.database.addresses import Address
from headrace.spark.database.moments import DAY, FORMS, Timestamp, iso, span_of
from headrace.spark.database.positions import Limits, Position, Tracking
from headrace.spark.database.reading import looking


@dataclass(frozen=True)
class TableToRead:
    """Which rows of which table."""

    address: Address
    table: str
    tracking: Tracking
    columns: tuple[str, ...] = ()
    rows_per_batch: int | None = None

    @property
    def title(self) -> str:
        """What positions belong to; a database may move to another place."""
        by = ", ".join(self.tracking.columns)
        return f"table {self.table} of {self.address.name}, mode {self.tracking.mode} by {by}"

    def options(self, stage: str) -> dict[str, str]:
        """What the source needs, as Spark takes it."""
        tracking, address = self.tracking, self.address.absolute()
        found = {
            "url": address.url,
            "password": address.password.get_secret_value() if address.password else None,
            "table": self.table,
            "columns": orjson.dumps(self.columns).decode() if self.columns else None,
            "mode": tracking.mode,
            "incrementing": tracking.incrementing,
            "timestamp": tracking.timestamp,
            "delay": str(tracking.delay),
            "stage": stage,
            "rowsPerBatch": None if self.rows_per_batch is None else str(self.rows_per_batch),
        }
        return {name: value for name, value in found.items() if value is not None}

    def check(self) -> list[str]:
        """Look at the table once; returns the columns that are sent. Refuses what cannot work."""
        with looking(self.address, self.table) as database:
            for name in (*self.columns, *self.tracking.columns):
                database.column(name)
            database.refuse_nulls(self.tracking)
            beginning = (Position(), Limits(rows=1))
            first = next(database.rows(self.columns, self.tracking, *beginning), None)
            if first is not None and self.tracking.by_time:
                self._refuse_future(first.timestamp, database.now(self.tracking))
            return list(self.columns) or [column.name for column in database.columns]

    def _refuse_future(self, oldest: Timestamp | None, now: int) -> None:
        """Digits like 20240501120000 pass for milliseconds of the year 2611, and no row would be
        sent."""
        if span_of(oldest).begin > now + DAY:
            raise BadInput(
                f"the oldest {self.tracking.timestamp!r} of table {self.table!r} is {oldest!r}, "
                f"taken for {iso(oldest)}: more than a day ahead of the database's clock",
                hint=f"what is understood: {FORMS}; 20240501120000 is none of them",
            )
