"""What a running consumer tells: a closed list of events, each a plain value.

    def on_event(event: Event) -> None:
        if isinstance(event, Stalled):
            page_somebody(event.partition, event.waits_for)

Every event is also logged (logger `headrace.consumer`), with its own level.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from headrace.model import TopicPartition

logger = logging.getLogger("headrace.consumer")
logger.addHandler(logging.NullHandler())  # silent unless the application configures logging


@dataclass(frozen=True)
class Event:
    """Base of all events; `str(event)` is one line."""

    level: ClassVar[int] = logging.INFO
    consumer: str


@dataclass(frozen=True)
class Assigned(Event):
    """Partitions were given to this consumer."""

    partitions: Sequence[TopicPartition]

    def __str__(self) -> str:
        return f"{self.consumer}: assigned {_names(self.partitions)}"


@dataclass(frozen=True)
class Revoked(Event):
    """Partitions went to somebody else; `unfinished` records will be handled there."""

    partitions: Sequence[TopicPartition]
    unfinished: int
    lost: bool = False

    def __str__(self) -> str:
        how = "lost" if self.lost else "revoked"
        return f"{self.consumer}: {how} {_names(self.partitions)}, {self.unfinished} unfinished"


@dataclass(frozen=True)
class CommitFailed(Event):
    """A commit was refused or not answered; the next one tries again."""

    level: ClassVar[int] = logging.WARNING
    partitions: Sequence[TopicPartition]
    reason: str

    def __str__(self) -> str:
        return f"{self.consumer}: committing {_names(self.partitions)} failed: {self.reason}"


@dataclass(frozen=True)
class RecordFailed(Event):
    """A record's handler raised, or its bytes could not be decoded."""

    level: ClassVar[int] = logging.ERROR
    where: str
    error: BaseException
    then: str
    shown: str  # the error as text

    def __str__(self) -> str:
        return f"{self.consumer}: {self.where} failed ({self.then}): {self.shown}"


@dataclass(frozen=True)
class PositionGone(Event):
    """The offset to go on from is not there any more; `start` counts again."""

    level: ClassVar[int] = logging.ERROR
    partition: TopicPartition
    wanted: int
    resumed_at: int

    def __str__(self) -> str:
        return (
            f"{self.consumer}: {self.partition} has no offset {self.wanted} any more "
            f"(retention, or a topic made again); going on at {self.resumed_at}"
        )


@dataclass(frozen=True)
class MapIgnored(Event):
    """A commit's metadata were not ours or damaged: records beyond the offset are repeated."""

    level: ClassVar[int] = logging.WARNING
    partition: TopicPartition
    reason: str

    def __str__(self) -> str:
        return f"{self.consumer}: {self.partition}: {self.reason}"


@dataclass(frozen=True)
class Stalled(Event):
    """A partition has something to do, and nothing was finished for `seconds`."""

    level: ClassVar[int] = logging.WARNING
    partition: TopicPartition
    offset: int | None
    seconds: float
    waits_for: str

    def __str__(self) -> str:
        at = "" if self.offset is None else f"@{self.offset}"
        return (
            f"{self.consumer}: {self.partition}{at} has made no progress for "
            f"{self.seconds:.0f} s: {self.waits_for}"
        )


@dataclass(frozen=True)
class WorkerDied(Event):
    """A process that ran handlers ended by itself; its records run again."""

    level: ClassVar[int] = logging.ERROR
    records: int

    def __str__(self) -> str:
        return f"{self.consumer}: a worker process died; {self.records} records run again"


@dataclass(frozen=True)
class ClientTrouble(Event):
    """The client reports a passing trouble, a broker that is away for instance."""

    level: ClassVar[int] = logging.WARNING
    reason: str

    def __str__(self) -> str:
        return f"{self.consumer}: {self.reason}"


OnEvent: TypeAlias = Callable[[Event], None]


def tell(event: Event, listener: OnEvent | None) -> None:
    """Log an event and give it to a listener. One that raises is logged, and harms nobody."""
    logger.log(event.level, "%s", event)
    if listener is not None:
        try:
            listener(event)
        except Exception:
            logger.exception("the listener of events raised on %s", event)


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions)) or "nothing"
