"""A typed admin client: topics, offsets, groups. Every failure is a HeadraceError."""

import contextlib
import dataclasses
import difflib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.clients.connection import Connection, resolve
from headrace.clients.failures import translate
from headrace.errors import GroupNotFound, HeadraceError, KafkaFailure, TopicNotFound, Unreachable
from headrace.model import AtTime, Deadline, Earliest, Latest, TopicPartition

T = TypeVar("T")
SECONDS = 15.0
SECONDS_TO_SPREAD = 1.0
SECONDS_TO_ANSWER = 5.0
MOST_BROKERS_ASKED = 9
_ADMIN_SETTINGS: dict[str, Any] = {
    # Asking about a topic must not make it.
    "allow.auto.create.topics": False,
    # librdkafka sends changes to the broker it takes for the controller. If that one dies, it
    # waits for it until metadata name another: every second, not every five minutes.
    "topic.metadata.refresh.interval.ms": 1000,
}
_NO_SUCH_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.TOPIC_EXCEPTION,  # a name that no topic can have
)

# By name: what a broker says of a partition whose leader is changing, or of a group whose
# coordinator is.
_UNSETTLED = {
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "_NOENT",
}


@dataclass(frozen=True)
class Broker:
    """A broker as the cluster knows it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True)
class Partition:
    """A partition and where its copies are."""

    id: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class Topic:
    """A topic and its partitions."""

    name: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Config:
    """A topic's setting; `is_default` if it was not set on the topic itself."""

    name: str
    value: str | None
    is_default: bool


@dataclass(frozen=True)
class Member:
    """A member of a group and the partitions it holds."""

    id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Group:
    """A consumer group as its coordinator sees it."""

    name: str
    state: str
    protocol: str
    members: tuple[Member, ...]


class Admin:
    """Topics, offsets and groups of one cluster.

    >>> admin = Admin()                                   # doctest: +SKIP
    >>> admin.create_topic("clicks", partitions=5)        # doctest: +SKIP
    >>> admin.topic("clicks").partitions[0].leader        # doctest: +SKIP
    1
    """

    def __init__(self, connection: Connection | str | None = None) -> None:
        if isinstance(connection, str):
            connection = Connection(connection)
        self.connection = connection or resolve()
        settings = self.connection.client_settings() | _ADMIN_SETTINGS
        try:
            self._client = AdminClient(settings)
        except (KafkaException, ValueError, TypeError) as error:
            raise translate(error, "making a client") from error

    # --- brokers ---

    def brokers(self) -> list[Broker]:
        """The brokers that are alive, by id."""
        found = self._metadata("listing brokers").brokers.values()
        return sorted((Broker(b.id, b.host, b.port) for b in found), key=lambda broker: broker.id)

    # --- topics ---

    def topic_names(self) -> list[str]:
        """All topics, internal ones included."""
        return sorted(self._metadata("listing topics").topics)

    def topics(self, names: Sequence[str]) -> list[Topic]:
        """These topics with their partitions, from any broker that is alive."""
        found = self._metadata("describing topics").topics
        return [self._topic(name, found.get(name)) for name in names]

    def topic(self, name: str) -> Topic:
        """One topic. Some brokers may not know a new one yet, so it looks for a moment."""
        try:
            return _settled(lambda: self._topic_now(name))
        except TopicNotFound as error:
            raise self._topic_not_found(name) from error

    def topic_id(self, name: str) -> str:
        """A topic's id: one that is deleted and made again has another."""
        self.topic(name)
        asked = self._client.describe_topics(TopicCollection([name]))[name]
        return str(self._wait(asked, f"describing topic {name}").topic_id)

    def has_topic(self, name: str) -> bool:
        """Whether the broker that answers knows the topic now."""
        try:
            self._topic_now(name)
        except TopicNotFound:
            return False
        return True

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until every broker knows it, with a leader for each partition."""
        new = NewTopic(name, partitions, replication or -1, config=dict(configs or {}))
        futures = self._client.create_topics([new], request_timeout=SECONDS)
        self._wait(futures[name], f"creating topic {name}")
        self._until_known(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's partition count to `total`."""
        futures = self._client.create_partitions(
            [NewPartitions(name, total)], request_timeout=SECONDS
        )
        self._wait(futures[name], f"adding partitions to {name}")
        self._until_known(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the cluster no longer knows it."""
        futures = self._client.delete_topics([name], request_timeout=SECONDS)
        self._wait(futures[name], f"deleting topic {name}")
        self._until(lambda: not self.has_topic(name), f"topic {name} is still known")

    def configs(self, topic: str) -> list[Config]:
        """Every setting of a topic, set or default."""
        resource = ConfigResource(ResourceType.TOPIC, topic)

        def ask() -> Mapping[str, Any]:
            futures = self._client.describe_configs([resource], request_timeout=SECONDS)
            return self._wait(futures[resource], f"reading the settings of {topic}")

        entries = _settled(ask)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return [
            Config(name, entry.value, entry.source != own)
            for name, entry in sorted(entries.items())
        ]

    def set_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Change these settings and no others; None takes one back to its default."""
        changes = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.SET
                if value is not None
                else AlterConfigOpType.DELETE,
            )
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        futures = self._client.incremental_alter_configs([resource], request_timeout=SECONDS)
        self._wait(futures[resource], f"changing the settings of {topic}")
        # Brokers learn of it one after the other. Not insisted on: Kafka may spell a value anew.
        for _ in Deadline(SECONDS_TO_SPREAD).polls(every=0.05):
            own = {c.name: c.value for c in self.configs(topic) if not c.is_default}
            if all(own.get(name) == value for name, value in configs.items()):
                break

    # --- offsets ---

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        position: Earliest | Latest | AtTime,
        *,
        committed: bool = False,
    ) -> dict[TopicPartition, int]:
        """The offset of a position in each partition; a time after the last record is the end.
        With `committed`, the end is before the first transaction that is still open."""
        wanted = [ClientPartition(p.topic, p.partition) for p in partitions]
        if not wanted:
            return {}
        spec = _offset_spec(position)
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def ask() -> dict[TopicPartition, int]:
            futures = self._client.list_offsets(
                dict.fromkeys(wanted, spec),
                request_timeout=SECONDS,
                isolation_level=isolation,
            )
            return {
                TopicPartition(p.topic, p.partition): self._wait(
                    futures[p], f"reading offsets of {p.topic}[{p.partition}]"
                ).offset
                for p in wanted
            }

        found = _settled(ask)
        after_the_end = [p for p, offset in found.items() if offset < 0]
        if after_the_end:
            found.update(self.offsets(after_the_end, Latest(), committed=committed))
        return found

    # --- groups ---

    def group_names(self) -> list[str]:
        """All consumer groups."""

        def ask() -> list[str]:
            listing = self._wait(
                self._client.list_consumer_groups(request_timeout=SECONDS), "listing groups"
            )
            for error in listing.errors:  # a broker that did not answer leaves its groups out
                raise translate(error, "listing groups")
            return sorted(group.group_id for group in listing.valid)

        return _settled(ask)

    def groups(self, names: Sequence[str]) -> list[Group]:
        """These groups with their members. A group nobody knows is GroupNotFound."""
        if not names:
            return []

        def ask() -> list[Group]:
            futures = self._client.describe_consumer_groups(list(names), request_timeout=SECONDS)
            return [self._group(name, futures[name]) for name in names]

        return _settled(ask)

    def group(self, name: str) -> Group:
        return self.groups([name])[0]

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets a group has committed.

        Asked by a consumer that never joins: librdkafka's own request for all offsets of a group
        ends the process when the group's coordinator has just moved, after a broker's restart say.
        """
        doing = f"reading the offsets of group {group}"
        known = self._metadata(doing).topics.values()
        every = [
            ClientPartition(topic.topic, number) for topic in known for number in topic.partitions
        ]
        consumer = Consumer(
            self.connection.client_settings() | {"group.id": group, "enable.auto.commit": False}
        )
        try:
            answers = consumer.committed(every, timeout=SECONDS) if every else []
        except KafkaException as error:
            raise translate(error, doing) from error
        finally:
            consumer.close()
        for answer in answers:
            if answer.error is not None:
                raise translate(answer.error, doing)
        return {TopicPartition(p.topic, p.partition): p.offset for p in answers if p.offset >= 0}

    def set_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Move a group's committed offsets; the cluster refuses if the group has members."""
        wanted = [ClientPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        doing = f"moving the offsets of group {group}"

        def ask() -> None:
            futures = self._client.alter_consumer_group_offsets(request, request_timeout=SECONDS)
            answer = self._wait(futures[group], doing)
            for partition in answer.topic_partitions or ():
                if partition.error:
                    raise translate(partition.error, doing)

        _settled(ask)

    def delete_group(self, name: str) -> None:
        def ask() -> None:
            futures = self._client.delete_consumer_groups([name], request_timeout=SECONDS)
            self._wait(futures[name], f"deleting group {name}")

        _settled(ask)

    # --- inside ---

    def _wait(self, future: "Future[T]", doing: str) -> T:
        try:
            return future.result(timeout=SECONDS + 5)
        except KafkaException as error:
            raise translate(error, doing) from error
        except TimeoutError as error:
            raise Unreachable(
                f"{doing} had no answer within {SECONDS + 5:.0f} s",
                hint="is the cluster running? `headrace status` and `headrace doctor` tell",
            ) from error

    def _metadata(self, doing: str, topic: str | None = None, seconds: float = SECONDS) -> Any:
        try:
            return self._client.list_topics(topic, timeout=seconds)
        except KafkaException as error:
            raise translate(error, doing) from error

    def _topic_now(self, name: str, seconds: float = SECONDS) -> Topic:
        doing = f"describing topic {name}"
        return self._topic(name, self._metadata(doing, name, seconds).topics.get(name))

    def _topic(self, name: str, found: Any) -> Topic:
        if found is None or (found.error and found.error.code() in _NO_SUCH_TOPIC):
            raise TopicNotFound(f"there is no topic {name}", topic=name)
        if found.error:
            raise translate(found.error, f"describing topic {name}")
        return _topic(found)

    def _topic_not_found(self, name: str) -> TopicNotFound:
        close: list[str] = []
        with contextlib.suppress(HeadraceError):
            close = difflib.get_close_matches(name, self.topic_names(), n=1)
        hint = f"did you mean {close[0]}?" if close else f"make it: headrace topic create {name}"
        return TopicNotFound(f"there is no topic {name}", hint=hint, topic=name)

    def _group(self, name: str, future: "Future[Any]") -> Group:
        try:
            found = self._wait(future, f"describing group {name}")
        except GroupNotFound as error:
            raise _group_not_found(name) from error
        group = _group(found)
        # Brokers answer for a group they have never seen as if it were dead.
        if group.state == "dead" and name not in self.group_names():
            raise _group_not_found(name)
        return group

    def _until_known(self, name: str, partitions: int) -> None:
        """Changes reach the brokers one after the other, and a client may ask any of them next.

        So each broker is asked in turn, through a client that knows only this one; in a large
        cluster some of them.
        """
        complaint = f"topic {name} does not have {partitions} partitions with leaders yet"
        self._until(lambda: self._knows(name, partitions), complaint)
        for broker in self.brokers()[:MOST_BROKERS_ASKED]:
            address = f"{broker.host}:{broker.port}"
            one = Admin(dataclasses.replace(self.connection, bootstrap=address))
            # A broker that has just died answers nothing, and nobody will ask it.
            with contextlib.suppress(Unreachable):
                one._until(lambda one=one: one._knows(name, partitions), complaint)

    def _knows(self, name: str, partitions: int) -> bool:
        found = self._topic_now(name, seconds=SECONDS_TO_ANSWER).partitions
        return len(found) == partitions and all(p.leader is not None for p in found)

    def _until(self, condition: Any, complaint: str) -> None:
        """Changes reach the brokers one after the other; wait until the answer shows them."""
        for _ in Deadline(SECONDS).polls(every=0.05):
            with contextlib.suppress(TopicNotFound):
                if condition():
                    return
        raise KafkaFailure(
            f"{complaint} after {SECONDS:.0f} s", hint="look at it with `headrace topic describe`"
        )


def _settled(ask: Callable[[], T]) -> T:
    """A change reaches the brokers one after the other; ask again while one lags behind."""
    news, election = Deadline(SECONDS_TO_SPREAD), Deadline(SECONDS)
    while True:
        try:
            return ask()
        except TopicNotFound:
            if news.expired:
                raise
        except KafkaFailure as error:
            if error.facts.get("code") not in _UNSETTLED or election.expired:
                raise
        time.sleep(0.1)


def _group_not_found(name: str) -> GroupNotFound:
    return GroupNotFound(f"there is no group {name}", hint="see `headrace group list`", group=name)


def _offset_spec(position: Earliest | Latest | AtTime) -> OffsetSpec:
    match position:
        case Earliest():
            return OffsetSpec.earliest()
        case Latest():
            return OffsetSpec.latest()
        case AtTime(timestamp):
            return OffsetSpec.for_timestamp(timestamp)


def _topic(found: Any) -> Topic:
    partitions = (
        Partition(p.id, p.leader if p.leader >= 0 else None, tuple(p.replicas), tuple(p.isrs))
        for p in sorted(found.partitions.values(), key=lambda p: p.id)
    )
    return Topic(found.topic, tuple(partitions))


def _group(found: Any) -> Group:
    members = (
        Member(
            id=member.member_id,
            client_id=member.client_id,
            host=member.host.lstrip("/"),
            partitions=tuple(
                TopicPartition(p.topic, p.partition)
                for p in sorted(member.assignment.topic_partitions)
            )
            if member.assignment
            else (),
        )
        for member in found.members
    )
    return Group(
        name=found.group_id,
        state=found.state.name.lower(),
        protocol=found.type.name.lower(),
        members=tuple(members),
    )
