"""How far a table was read, and what comes next. Pure: no database, no clock.

Three modes, by the columns that tell what is new:

| mode | sees | order |
| --- | --- | --- |
| incrementing | new rows: their id is greater than all before | id |
| timestamp | new and changed rows: their timestamp is later than all before | timestamp |
| timestamp+incrementing | the same, and may stop between rows of one timestamp | timestamp, id |

**Nothing is missed at the edge of a batch.** A position with an id says which rows of a timestamp
were read. One without does not, so in mode timestamp a batch takes all rows of its last timestamp.

**Nothing is missed that comes a little later.** While the second that a timestamp names lasts,
another row may get it; and a transaction may take its timestamp early and commit late. So a row is
read when its timestamp's span has been over for `delay`.

**What no mode sees:** rows that are deleted; all but the last of several changes between two looks;
a row that commits with a timestamp older than `delay`; in mode incrementing any change, and a row
that commits after one with a greater id was read; with timestamps, a change that leaves the
timestamp as it was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from headrace.errors import BadInput, ConfigError
from headrace.spark.database.moments import SECOND, Timestamp, span_of

Mode = Literal["incrementing", "timestamp", "timestamp+incrementing"]
MODES = get_args(Mode)


@dataclass(frozen=True)
class Position:
    """The last row that was read; of a timestamp and an id, those that the mode goes by.

    `rows` counts all that were read to come here.
    """

    timestamp: Timestamp | None = None
    id: int | None = None
    rows: int = 0

    @property
    def is_beginning(self) -> bool:
        return self.timestamp is None and self.id is None


class Row(NamedTuple):
    """A row with what places it, as a position holds it."""

    values: Sequence[Any]
    timestamp: Timestamp | None
    id: int | None


@dataclass(frozen=True)
class Limits:
    """How far a look goes: rows settled by `moment` (microseconds since 1970), ids up to `id`, and
    about `rows` of them."""

    moment: int | None = None
    id: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Tracking:
    """Which columns tell what is new."""

    mode: Mode
    incrementing: str | None = None
    timestamp: str | None = None
    delay: float = 0.0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"mode is {self.mode!r}", hint=f"one of {', '.join(MODES)}")
        if self.delay < 0:
            raise ConfigError(f"the delay is {self.delay} seconds", hint="give 0 or more")
        for part in self.mode.split("+"):
            if not getattr(self, part):
                raise ConfigError(
                    f"mode {self.mode!r} needs a column for it: {part}",
                    hint=f"{part}='the column'",
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that rows are ordered by."""
        found = {"timestamp": self.timestamp, "incrementing": self.incrementing}
        return tuple(str(name) for part, name in found.items() if part in self.mode.split("+"))

    @property
    def by_id(self) -> bool:
        return self.mode != "timestamp"

    @property
    def by_time(self) -> bool:
        return self.mode != "incrementing"

    def query(self, start: Position, limit: int | None) -> tuple[str, tuple[Any, ...]]:
        """What follows `SELECT ... FROM ...`, with a ? for each parameter.

        >>> Tracking("timestamp+incrementing", "id", "at").query(Position("2024-05-01", 7), 10)
        (' WHERE ("at", "id") > (?, ?) ORDER BY "at", "id" LIMIT 10', ('2024-05-01', 7))
        >>> Tracking("timestamp", timestamp="at").query(Position(), 10)
        (' ORDER BY "at"', ())
        """
        names = ", ".join(map(quoted, self.columns))
        text, parameters = "", self._parameters(start)
        if parameters and len(parameters) == 1:
            text += f" WHERE {names} > ?"
        elif parameters:
            text += f" WHERE ({names}) > ({', '.join('?' for _ in parameters)})"
        text += f" ORDER BY {names}"
        # Without an id nobody knows how many rows the last timestamp has: `take` looks for its end.
        if self.by_id and limit is not None:
            text += f" LIMIT {limit}"
        return text, parameters

    def _parameters(self, start: Position) -> tuple[Any, ...]:
        if start.is_beginning:
            return ()
        found = (start.timestamp,) if self.by_time else ()
        return (*found, start.id) if self.by_id else found

    def settled_by(self, now: int) -> int:
        """The moment up to which timestamps can be trusted."""
        return now - round(self.delay * SECOND)

    def take(self, rows: Iterable[Row], limits: Limits) -> Iterator[Row]:
        """Of rows in their order, those that one batch takes."""
        count, last, begin = 0, None, None
        for row in rows:
            if not self._is_within(row, limits):
                return
            full = limits.rows is not None and count >= limits.rows
            if full and (self.by_id or row.timestamp != last):
                return
            if self.by_time:
                begin = _not_before(begin, row)
            count, last = count + 1, row.timestamp
            yield row

    def _is_within(self, row: Row, limits: Limits) -> bool:
        if self.by_time and limits.moment is not None:
            return span_of(row.timestamp).end <= limits.moment
        return limits.id is None or (row.id is not None and row.id <= limits.id)

    def position(self, row: Row, rows: int) -> Position:
        """Where one is after this row, the last of so many."""
        return Position(
            row.timestamp if self.by_time else None, row.id if self.by_id else None, rows
        )


def _not_before(begin: int | None, row: Row) -> int:
    """Texts of several forms have another order than the times they stand for."""
    found = span_of(row.timestamp).begin
    if begin is not None and found < begin:
        raise BadInput(
            f"timestamp {row.timestamp!r} comes after later ones in the table's order",
            hint="all timestamps of a column must have one form and one zone",
        )
    return found


def quoted(name: str) -> str:
    """A name as SQL takes it.

    >>> quoted('billed amount')
    '"billed amount"'
    """
    if set(name) & {"?", "%", "\x00"}:
        raise BadInput(f"a table or column is called {name!r}", hint="without ? and %")
    return '"' + name.replace('"', '""') + '"'


def position_of(offset: Mapping[str, Any]) -> Position:
    """A position out of JSON; nothing at all is the beginning."""
    return Position(offset.get("timestamp"), offset.get("id"), offset.get("rows", 0))
