"""How many records there are in ranges of offsets, which is less than the offsets themselves."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from headrace.clients.connection import Connection
from headrace.clients.failures import translate
from headrace.clients.reader import is_passing
from headrace.model import TopicPartition

Places = Mapping[TopicPartition, tuple[int, int]]  # the end is excluded
_AT_ONCE = 10_000
_SETTINGS: dict[str, Any] = {
    "group.id": "headrace-reader",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
}


def count_records(
    connection: Connection,
    ranges: Places,
    advance: Callable[[int], None] = lambda _count: None,
) -> dict[TopicPartition, int]:
    """Count what a reader of committed records sees: markers of transactions take offsets, and so
    did what was aborted or compacted. Reads every record, and keeps none."""
    return _Counter(ranges, advance).run(connection)


class _Counter:
    """One count of some partitions, side by side."""

    def __init__(self, ranges: Places, advance: Callable[[int], None]) -> None:
        self._advance = advance
        self._counts = dict.fromkeys(ranges, 0)
        self._open = {at: places for at, places in ranges.items() if places[0] < places[1]}

    def run(self, connection: Connection) -> dict[TopicPartition, int]:
        if not self._open:
            return self._counts
        try:
            consumer = Consumer(connection.client_settings() | _SETTINGS)
        except (KafkaException, ValueError, TypeError) as error:
            raise translate(error, "making a consumer") from error
        try:
            consumer.assign([ClientPartition(*at, begin) for at, (begin, _) in self._open.items()])
            while self._open:
                before = sum(self._counts.values())
                for message in consumer.consume(_AT_ONCE, timeout=0.2):
                    if self._ends(message):
                        consumer.pause([ClientPartition(message.topic(), message.partition())])
                self._advance(sum(self._counts.values()) - before)
        except KafkaException as error:
            raise translate(error, "counting records") from error
        finally:
            consumer.close()
        return self._counts

    def _ends(self, message: Message) -> bool:
        """Count a message, and say whether it is the last of its partition."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if is_passing(error):
                return False
            raise translate(error, "counting records")
        at = TopicPartition(message.topic() or "", message.partition() or 0)
        if at not in self._open:
            return False
        end, offset = self._open[at][1], message.offset() or 0
        if error is None and offset < end:
            self._counts[at] += 1
        if error is not None or offset >= end - 1:
            del self._open[at]
            return True
        return False
