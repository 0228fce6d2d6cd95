"""Lag made visible: a streaming query's offsets, committed to a consumer group after each batch.

Spark keeps offsets in its checkpoint, where no lag tool looks. A pipeline tells of each batch by
itself; of any other query, Spark tells a listener. A thread commits what they tell: no query waits
for it, and only the newest counts.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.clients import Admin, Connection
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.observe import Progress

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


class LagCommitter:
    """Commits to a group what it is told, on a thread of its own. `close` waits for the last. What
    goes wrong is told to `warn`, each thing once."""

    def __init__(
        self, group: str, admin: Admin, warn: Callable[[str], None] = logger.warning
    ) -> None:
        self._group, self._admin, self._warn = group, admin, warn
        self._warned: set[str] = set()
        self._changed = threading.Condition()
        self._waiting: dict[TopicPartition, int] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._commit, name="lag", daemon=True)
        self._thread.start()

    def note(self, offsets: Mapping[TopicPartition, int]) -> None:
        """All before these is done; they are committed soon."""
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
                self._tell(f"the lag of group {self._group} is not up to date: {error}")

    def _tell(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            self._warn(warning)


@contextlib.contextmanager
def lag_shown(
    group: str | None, admin: Admin, progress: Progress
) -> Iterator[Callable[[Mapping[TopicPartition, int]], None]]:
    """What takes the offsets of a query after each batch, and commits them if there is a group."""
    if group is None:
        yield lambda _offsets: None
        return
    with contextlib.closing(LagCommitter(group, admin, progress.warn)) as committer:
        yield committer.note


class LagListener(StreamingQueryListener):
    """Commits what a query of your own has read from Kafka to a group.

    >>> spark.streams.addListener(LagListener("clicks-to-tables", connection))  # doctest: +SKIP

    With `query`, only that query's (by name); else every query's of the session. `close` waits for
    the last commit.
    """

    def __init__(self, group: str, connection: Connection, query: str | None = None) -> None:
        self._query = query
        self._committer = LagCommitter(group, Admin(connection))

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        if self._query in (None, event.progress.name):
            for source in event.progress.sources:
                self._committer.note(read_offsets(source.endOffset))

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        pass

    def close(self) -> None:
        """Commit what is left, and end."""
        self._committer.close()


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
