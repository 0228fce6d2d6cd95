"""Times of PostgreSQL that Python has no word for: `infinity`, years BC and after 9999, 24:00.

They are taken as the texts that PostgreSQL writes. So one of them does not stop the rows around it;
whether its row fits its fields is seen later.
"""

from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.abc import AdaptContext, Buffer, Loader
from psycopg.pq import Format

_TYPES = ("date", "time", "timetz", "timestamp", "timestamptz", "interval")


def take_any_time(connection: "psycopg.Connection[Any]") -> None:
    """From now on the connection gives a text where it would refuse a time."""
    adapters = connection.adapters
    for name in _TYPES:
        oid = adapters.types[name].oid
        usual = adapters.get_loader(oid, Format.TEXT)
        assert usual is not None, name  # psycopg has one for each
        adapters.register_loader(oid, _or_text(usual))


def _or_text(usual: type[Loader]) -> type[Loader]:
    class OrText:
        """What the usual loader says, else the text. Cursors here ask for no binary values."""

        format = Format.TEXT

        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            self._usual = usual(oid, context)

        def load(self, data: Buffer) -> Any:
            try:
                found = self._usual.load(data)
                if isinstance(found, datetime) and found.tzinfo is not None:
                    found.astimezone(UTC)  # as it is sent
            except (psycopg.DataError, OverflowError):
                return bytes(data).decode()
            return found

    return OrText
