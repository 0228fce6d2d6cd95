"""Lag made visible: a streaming query's offsets, committed to a consumer group after each batch.

Spark keeps offsets in its checkpoint, where no lag tool looks. A listener hears of each batch's
end, and a thread of its own commits: the query never waits for it, and only the newest counts.
"""

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.clients import Admin, Connection
from headrace.errors import HeadraceError
from headrace.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

logger = logging.getLogger("headrace.spark")
logger.addHandler(logging.NullHandler())
SECONDS_TO_FINISH = 10.0


class LagListener(StreamingQueryListener):
    """Commits what a query has read from Kafka to a group.

    >>> spark.streams.addListener(LagListener("clicks-to-tables", connection))  # doctest: +SKIP

    With `query`, only that query's (by name); else every query's of the session. `close` waits for
    the last commit.
    """

    def __init__(self, group: str, connection: Connection, query: str | None = None) -> None:
        self._group, self._query = group, query
        self._admin = Admin(connection)
        self._changed = threading.Condition()
        self._waiting: dict[TopicPartition, int] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._commit, name="lag", daemon=True)
        self._thread.start()

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        if self._query in (None, event.progress.name):
            for source in event.progress.sources:
                self.note(read_offsets(source.endOffset))

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        pass

    def note(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are done, and are committed soon."""
        with self._changed:
            self._waiting.update(offsets)
            self._changed.notify()

    def close(self) -> None:
        """Commit what is left, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(SECONDS_TO_FINISH)

    def _commit(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                offsets, self._waiting = self._waiting, {}
            if not offsets:
                return
            try:
                self._admin.set_committed(self._group, offsets)
            except HeadraceError as error:  # the next batch's commit holds all that this one does
                logger.warning("the lag of group %s is not up to date: %s", self._group, error)


def read_offsets(text: str | None) -> dict[TopicPartition, int]:
    """The offsets in a progress report; empty if the source is not Kafka.

    >>> read_offsets('{"clicks":{"0":7}}')
    {TopicPartition(topic='clicks', partition=0): 7}
    >>> read_offsets("null")
    {}
    """
    try:
        found: Any = orjson.loads(text or "null")
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, places in found.items()
            for partition, offset in places.items()
        }
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError):
        return {}
