"""What a consumer can be told, checked when it is declared. No I/O."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from headrace.config.consumer_settings import Assignor, ConsumerProfile, consumer_settings
from headrace.errors import ConfigError
from headrace.model import Position, Record, TopicPartition, parse_position
from headrace.parallel.batching import Batch
from headrace.parallel.commit import Auto, OffsetStrategy, strategy_named
from headrace.parallel.handlers import Handler, Signature, read_signature, serde_for
from headrace.parallel.state import Order
from headrace.serde import Serde

Executor: TypeAlias = Literal["thread", "async", "process"]
OnError: TypeAlias = (
    Literal["stop", "skip"] | Callable[[Record, BaseException], Literal["stop", "skip"]]
)
# (instance, instances, all partitions) -> the partitions of this instance
Assignment: TypeAlias = Callable[[int, int, Sequence[TopicPartition]], Sequence[TopicPartition]]

MOST_WORKERS = 10_000
DEFAULT_WORKERS = {"thread": 16, "async": 100}


@dataclass(frozen=True)
class RebalanceListener:
    """Told when partitions come and go, in the polling thread: be brief.

    `revoked` comes after the last commit for these partitions, `lost` instead of it when they
    belong to others already.
    """

    assigned: Callable[[list[TopicPartition]], None] | None = None
    revoked: Callable[[list[TopicPartition]], None] | None = None
    lost: Callable[[list[TopicPartition]], None] | None = None


@dataclass(frozen=True)
class ConsumerOptions:
    """A declared consumer. `hr.App.consumer` documents each option."""

    name: str
    topics: tuple[str, ...]
    group: str
    handler: Handler
    signature: Signature
    executor: Executor
    concurrency: int
    order: Order
    value: Serde[Any]
    batch: Batch | None
    offsets: OffsetStrategy
    start: Position | None  # None: a group without an offset is an error
    on_error: OnError
    rate: float | None
    buffer_records: int
    buffer_bytes: int
    drain: float
    stall_after: float
    assignment: Assignment | None
    partitions: tuple[TopicPartition, ...] | None
    listener: RebalanceListener
    settings: Mapping[str, Any] = field(default_factory=dict)


def check_options(
    handler: Handler,
    topics: str | Sequence[str],
    *,
    group: str,
    name: str | None = None,
    value: Serde[Any] | None = None,
    order: Order = "key",
    concurrency: int | None = None,
    executor: Executor | None = None,
    batch: Batch | None = None,
    offsets: OffsetStrategy | str = "gap-safe",
    start: Position | str = "earliest",
    on_error: OnError = "stop",
    rate: float | None = None,
    buffer_records: int = 50_000,
    buffer_bytes: int = 64 * 1024 * 1024,
    drain: float = 30.0,
    stall_after: float = 60.0,
    profile: ConsumerProfile = "balanced",
    assignor: Assignor = "cooperative-sticky",
    instance_id: str | None = None,
    assignment: Assignment | None = None,
    partitions: Sequence[int] | None = None,
    listener: RebalanceListener | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ConsumerOptions:
    """The options as one checked value; raises ConfigError naming what contradicts what."""
    signature = read_signature(handler, batch=batch is not None)
    subject = f"consumer {name or signature.name}"
    strategy = strategy_named(offsets)
    chosen = _executor(subject, handler, signature, executor)
    _check_topics(subject, topics, group)
    _check_order(subject, order, batch)
    _check_strategy(subject, strategy, on_error)
    _check_positive(
        subject,
        rate=rate,
        buffer_records=buffer_records,
        buffer_bytes=buffer_bytes,
        drain=drain,
        stall_after=stall_after,
    )
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    _check_reading(subject, names, assignment, partitions, instance_id)
    return ConsumerOptions(
        name=name or signature.name,
        topics=names,
        group=group,
        handler=handler,
        signature=signature,
        executor=chosen,
        concurrency=_concurrency(subject, concurrency, chosen),
        order=order,
        value=value or serde_for(signature.value_type),
        batch=batch,
        offsets=strategy,
        start=_start(start),
        on_error=on_error,
        rate=rate,
        buffer_records=buffer_records,
        buffer_bytes=buffer_bytes,
        drain=drain,
        stall_after=stall_after,
        assignment=assignment,
        partitions=None if partitions is None else _partitions(names, partitions),
        listener=listener or RebalanceListener(),
        settings=consumer_settings(
            profile, settings or {}, group=group, assignor=assignor, instance_id=instance_id
        ),
    )


def _executor(
    subject: str, handler: Handler, signature: Signature, wanted: Executor | None
) -> Executor:
    natural: Executor = "async" if signature.is_async else "thread"
    chosen = wanted or natural
    if chosen not in get_args(Executor):
        raise _refused(subject, f"executor={wanted!r} is unknown", "use thread, async or process")
    if (chosen == "async") != signature.is_async:
        kind = "an async function" if signature.is_async else "a plain function"
        raise _refused(
            subject,
            f"executor={wanted!r} and {kind} contradict each other",
            "leave executor out: plain functions run on threads, async ones on the event loop",
        )
    if chosen == "process" and ("<" in signature.name or not hasattr(handler, "__module__")):
        raise _refused(
            subject,
            f"executor='process' cannot import the handler {signature.name}",
            "define it at the top level of a module",
        )
    return chosen


def _concurrency(subject: str, wanted: int | None, executor: Executor) -> int:
    if wanted is None:
        return DEFAULT_WORKERS.get(executor) or os.cpu_count() or 1
    if not 1 <= wanted <= MOST_WORKERS:
        raise _refused(
            subject, f"concurrency={wanted} is out of range", f"use 1 to {MOST_WORKERS:,}"
        )
    return wanted


def _check_topics(subject: str, topics: str | Sequence[str], group: str) -> None:
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names or not all(names):
        raise _refused(subject, "it names no topic", "give a topic, a list of them or a ^pattern")
    if not group:
        raise _refused(subject, "group is empty", "give the group's name")
    for pattern in (name for name in names if name.startswith("^")):
        try:
            re.compile(pattern)
        except re.error as error:
            raise _refused(
                subject, f"the pattern {pattern!r} is wrong: {error}", "correct the pattern"
            ) from error


def _check_order(subject: str, order: str, batch: Batch | None) -> None:
    if order not in get_args(Order):
        raise _refused(subject, f"order={order!r} is unknown", "use key, partition or none")
    if batch is not None and batch.same_key and order == "partition":
        raise _refused(
            subject,
            "order='partition' and batch.same_key=True contradict each other: "
            "a batch of one key would pass over the records between",
            "use order='key', or leave same_key out",
        )


def _check_strategy(subject: str, strategy: OffsetStrategy, on_error: OnError) -> None:
    if isinstance(strategy, Auto) and on_error != "skip":
        raise _refused(
            subject,
            f"offsets='auto' and on_error={on_error!r} contradict each other: "
            "the failed record may be committed already, so stopping does not keep it",
            "use on_error='skip' with auto, or another strategy",
        )
    if not callable(on_error) and on_error not in ("stop", "skip"):
        raise _refused(subject, f"on_error={on_error!r} is unknown", "use stop, skip or a function")


def _check_positive(subject: str, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and value <= 0:
            raise _refused(subject, f"{name}={value} must be positive", f"give {name} above 0")


def _check_reading(
    subject: str,
    topics: tuple[str, ...],
    assignment: Assignment | None,
    partitions: Sequence[int] | None,
    instance_id: str | None,
) -> None:
    manual = assignment is not None or partitions is not None
    if assignment is not None and partitions is not None:
        raise _refused(
            subject, "assignment and partitions exclude each other", "leave one of them out"
        )
    if manual and instance_id is not None:
        raise _refused(
            subject,
            f"instance_id={instance_id!r} is of no use with assigned partitions",
            "leave it out: there is no group to be a member of",
        )
    if manual and any(topic.startswith("^") for topic in topics):
        raise _refused(
            subject, "a pattern cannot be assigned", "name the topics, or subscribe instead"
        )


def _partitions(topics: Sequence[str], numbers: Sequence[int]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for topic in topics for number in numbers)


def _start(start: Position | str) -> Position | None:
    if start == "none":
        return None
    return parse_position(start) if isinstance(start, str) else start


def _refused(subject: str, why: str, hint: str) -> ConfigError:
    return ConfigError(f"{subject}: {why}", hint=hint)
