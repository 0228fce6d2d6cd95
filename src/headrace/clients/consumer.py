"""A member of a group, or a reader of assigned partitions: confluent-kafka's consumer in our words.

One thread calls everything: confluent-kafka lets in one at a time, and another would wait for the
length of a poll, again and again. The callbacks of a rebalance run inside `poll`, in that thread.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from headrace.clients.admin import Admin
from headrace.clients.connection import Connection
from headrace.clients.failures import translate
from headrace.errors import HeadraceError
from headrace.model import AtOffset, Earliest, Latest, Position, TopicPartition

REQUEST_SECONDS = 10.0
NUDGE_SECONDS = 0.2


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    metadata: str


class OffsetCommit(NamedTuple):
    """What is to be committed for a partition."""

    partition: TopicPartition
    offset: int
    metadata: str = ""


class PolledRun(NamedTuple):
    """Messages of one partition, in order."""

    partition: TopicPartition
    offsets: list[int]
    keys: list[bytes | None]
    messages: list[Message]


class Trouble(NamedTuple):
    """What came instead of a record. `partition` lost its position if `position_gone`."""

    error: HeadraceError
    fatal: bool
    position_gone: bool = False
    partition: TopicPartition | None = None
    offset: int = -1


Rebalanced = Callable[[list[TopicPartition]], None]
OnCommitted = Callable[[list[TopicPartition], HeadraceError | None], None]


class ConsumerClient:
    """Thin: it translates values and errors, and keeps no state but the client."""

    def __init__(
        self,
        connection: Connection,
        settings: dict[str, Any],
        *,
        on_committed: OnCommitted,
        on_trouble: Callable[[Trouble], None],
    ) -> None:
        self._connection = connection
        self._on_committed = on_committed
        self._on_trouble = on_trouble
        # Cooperative: partitions come and go one by one; else the whole assignment is replaced.
        self._incremental = (
            settings.get("group.protocol") == "consumer"
            or settings.get("partition.assignment.strategy") == "cooperative-sticky"
        )
        self._group = settings["group.id"]
        try:
            self._client = Consumer(
                connection.client_settings()
                | settings
                | {"on_commit": self._committed, "error_cb": self._troubled}
                | {"enable.partition.eof": True}  # see `without_ends`
            )
        except (KafkaException, ValueError, TypeError) as error:
            raise translate(error, "making a consumer") from error

    # --- membership ---

    def subscribe(
        self,
        topics: Sequence[str],
        assigned: Callable[[list[TopicPartition]], dict[TopicPartition, int]],
        revoked: Rebalanced,
        lost: Rebalanced,
    ) -> None:
        """Join the group. `assigned` returns where to begin in each partition."""

        def on_assign(client: Consumer, partitions: list[ClientPartition]) -> None:
            begins = _client_partitions(assigned(_model_partitions(partitions)))
            if self._incremental:
                client.incremental_assign(begins)
            else:
                client.assign(begins)

        def on_revoke(client: Consumer, partitions: list[ClientPartition]) -> None:
            revoked(_model_partitions(partitions))
            let_go(client, partitions)

        def on_lost(client: Consumer, partitions: list[ClientPartition]) -> None:
            lost(_model_partitions(partitions))
            let_go(client, partitions)

        def let_go(client: Consumer, partitions: list[ClientPartition]) -> None:
            if self._incremental:
                client.incremental_unassign(partitions)
            else:
                client.unassign()

        self._client.subscribe(
            list(topics), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )

    def assign(self, begins: dict[TopicPartition, int]) -> None:
        """Read these partitions, whatever the group's other members do."""
        self._incremental = True  # no group decides: one by one is always possible
        self._client.assign(_client_partitions(begins))

    def close(self) -> None:
        """Leave the group at once."""
        self._client.close()

    # --- records ---

    def poll(self, most: int, seconds: float) -> list[Message]:
        """What is there, else the first that comes within so many seconds and what came with it.

        `consume` alone would wait for `most` records, or the whole time.
        """
        messages: list[Message] = self._client.consume(most, 0)
        if not messages and seconds > 0:
            first = self._client.poll(seconds)
            if first is not None:
                messages = [first, *self._client.consume(most, 0)]
        return messages

    @staticmethod
    def without_ends(messages: list[Message]) -> tuple[list[Message], dict[TopicPartition, int]]:
        """Take out what says that a partition has no more, and from which offset on.

        That is beyond the last record if markers of transactions stand behind it.
        """
        if not any(map(Message.error, messages)):
            return messages, {}
        ends = {
            TopicPartition(m.topic() or "", m.partition() or 0): m.offset() or 0
            for m in messages
            if _is_end(m)
        }
        return [message for message in messages if not _is_end(message)], ends

    def runs(self, messages: Sequence[Message]) -> Iterator[PolledRun]:
        """Messages by partition, without those that are no record (`tell_troubles`)."""
        if any(map(Message.error, messages)):
            messages = [message for message in messages if message.error() is None]
        for number, by_number in groupby(messages, Message.partition):
            for topic, run in groupby(by_number, Message.topic):
                batch = list(run)
                yield PolledRun(
                    TopicPartition(topic or "", number or 0),
                    list(map(Message.offset, batch)),
                    list(map(Message.key, batch)),
                    batch,
                )

    def tell_troubles(self, messages: Iterable[Message]) -> None:
        """Give to `on_trouble` what came instead of records; after those that came before it."""
        for message in filter(Message.error, messages):
            error = message.error()
            assert error is not None
            self._on_trouble(self._trouble(error, message))

    def _trouble(self, error: KafkaError, message: Message | None = None) -> Trouble:
        said = translate(error, f"reading as group {self._group}")
        fatal = error.fatal() or error.code() in _FATAL
        if message is None or message.partition() is None or (message.partition() or 0) < 0:
            return Trouble(said, fatal)
        return Trouble(
            said,
            fatal,
            error.code() == KafkaError._AUTO_OFFSET_RESET,
            TopicPartition(message.topic() or "", message.partition() or 0),
            message.offset() or 0,
        )

    def _troubled(self, error: KafkaError) -> None:
        self._on_trouble(self._trouble(error))

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._client.pause([ClientPartition(*p) for p in partitions])

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._client.resume([ClientPartition(*p) for p in partitions])
        self.nudge(partitions)

    def nudge(self, partitions: Sequence[TopicPartition]) -> None:
        """Have librdkafka fetch these now.

        The thread of a broker from which nothing is being fetched sleeps for up to a second, and a
        partition that is resumed, or kept in a rebalance, does not wake it. A request does: here
        for the end offsets, which nobody needs.
        """
        latest = [ClientPartition(*partition, OFFSET_END) for partition in partitions]
        with contextlib.suppress(KafkaException):  # a broker that is away wakes up by itself
            self._client.offsets_for_times(latest, timeout=NUDGE_SECONDS)

    def restart(
        self, begins: dict[TopicPartition, int], others: dict[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Go on from these offsets; forgets what was fetched ahead. Returns the partitions of which
        it did so.

        librdkafka's own seek refuses a partition whose offset is gone, or that is only just being
        assigned. `others` are the positions of the other partitions: an eager client can only
        replace the whole assignment.
        """
        try:
            if self._incremental:
                self._client.incremental_unassign([ClientPartition(*p) for p in begins])
                self._client.incremental_assign(_client_partitions(begins))
                return list(begins)
            self._client.assign(_client_partitions(others | begins))
            return list(others | begins)
        except KafkaException as error:
            raise translate(error, f"moving group {self._group}") from error

    # --- offsets ---

    def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed, None where it has not."""
        doing = f"asking for the offsets of group {self._group}"
        try:
            answers = self._client.committed(
                [ClientPartition(*p) for p in partitions], timeout=REQUEST_SECONDS
            )
        except KafkaException as error:
            raise translate(error, doing) from error
        found: dict[TopicPartition, CommittedOffset | None] = {}
        for answer in answers:
            if answer.error is not None:
                raise translate(answer.error, doing)
            partition = TopicPartition(answer.topic, answer.partition)
            known = answer.offset >= 0
            found[partition] = (
                CommittedOffset(answer.offset, answer.metadata or "") if known else None
            )
        return found

    def commit(self, commits: Sequence[OffsetCommit], *, wait: bool) -> None:
        """Commit, and wait for the answer, or hear of it by `on_committed` during a poll."""
        offsets = [
            ClientPartition(*commit.partition, commit.offset, commit.metadata) for commit in commits
        ]
        doing = f"committing for group {self._group}"
        try:
            if not wait:
                self._client.commit(offsets=offsets, asynchronous=True)
                return
            answers = self._client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise translate(error, doing) from error
        for answer in answers or ():
            if answer.error is not None:
                raise translate(answer.error, doing)

    def _committed(
        self, error: KafkaError | None, partitions: list[ClientPartition] | None
    ) -> None:
        failed = error or next((p.error for p in partitions or () if p.error), None)
        if failed is not None and failed.code() == KafkaError._NO_OFFSET:
            return
        self._on_committed(
            _model_partitions(partitions or ()),
            None if failed is None else translate(failed, f"committing for group {self._group}"),
        )

    def begins(
        self, partitions: Sequence[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        """The offsets of a position. One that a partition does not have becomes its nearest."""
        admin = Admin(self._connection)
        if not isinstance(position, AtOffset):
            return admin.offsets(partitions, position)
        lows, highs = admin.offsets(partitions, Earliest()), admin.offsets(partitions, Latest())
        return {p: min(max(position.offset, lows[p]), highs[p]) for p in partitions}

    def end(self, partition: TopicPartition) -> int | None:
        """The end of a partition as of the last fetch; asks nobody."""
        try:
            _, high = self._client.get_watermark_offsets(ClientPartition(*partition), cached=True)
        except KafkaException:
            return None
        return high if high >= 0 else None


# What waiting does not cure.
_FATAL = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._AUTHENTICATION,
    }
)


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _model_partitions(partitions: Iterable[ClientPartition]) -> list[TopicPartition]:
    return [TopicPartition(p.topic, p.partition) for p in partitions]


def _client_partitions(begins: dict[TopicPartition, int]) -> list[ClientPartition]:
    return [ClientPartition(*partition, offset) for partition, offset in begins.items()]
