"""Where a group without offsets begins is yours to say: earliest, latest, or none, an error.

The choice counts once: a group that has committed goes on there, whatever it is told. "Latest" is
the end at the moment when a partition is assigned for the first time, and that is committed at
once. So a member that is killed before it has handled anything does not skip what is sent while
it is dead; a plain client, which notes its first offset with its first record, does.
"""

import contextlib
from collections.abc import Collection

from confluent_kafka import Consumer, KafkaError

from headrace.clients import Producer
from headrace.errors import NoPosition
from headrace.labs.consuming import Ledger, Member, MemberProcess
from headrace.labs.stage import Stage
from headrace.model import AtOffset, Deadline, Latest, TopicPartition
from headrace.services.groups import execute_reset, plan_reset

PARTITIONS = 2
OLD, NEW, NEWER = range(100), range(100, 150), range(150, 160)
NONE_BEGINS_AT = 40  # in each partition, once the group is told
MISSED = 20
SECONDS_FOR_PLAIN_CLIENT = 30.0
SESSION = {"session.timeout.ms": 6_000}


def run(stage: Stage) -> None:
    topic = stage.topic("starts", PARTITIONS)
    send(stage, topic, OLD)
    judge_none(stage, topic)
    judge_earliest_and_latest(stage, topic)
    judge_pinned(stage)


# --- none ---


def judge_none(stage: Stage, topic: str) -> None:
    """An error until the group is told where to begin."""
    group = stage.group("none")
    with Ledger() as ledger:
        member = Member(stage.connection, topic, group, ledger.path, options={"start": "none"})
        refused = error_of(member)
        at_first = ledger.begun()
        changes = plan_reset(stage.admin, group, topic, AtOffset(NONE_BEGINS_AT), None)
        execute_reset(stage.admin, group, changes)
        wanted = {str(n) for n in OLD if n // PARTITIONS >= NONE_BEGINS_AT}
        with member.app().running():
            stage.wait_until(lambda: len(ledger.finished()) >= len(wanted), "it has begun there")
        handled = ledger.finished()
    stage.fact("none: the error", refused or "there was none")
    stage.fact(f"none: handled after a reset to {NONE_BEGINS_AT}", len(handled))
    stage.check("none: a group without offsets is an error", refused is not None)
    stage.check("none: it handled nothing", not at_first)
    stage.check("none: told where to begin, it begins there", sorted(handled) == sorted(wanted))


def error_of(member: Member) -> str | None:
    try:
        with member.app().running() as running:
            running.wait_until_joined()
    except NoPosition as error:
        return error.message
    return None


# --- earliest and latest ---


def judge_earliest_and_latest(stage: Stage, topic: str) -> None:
    groups = {start: stage.group(start) for start in ("earliest", "latest")}
    with Ledger() as ledger:
        earliest, latest = (
            Member(stage.connection, topic, group, ledger.path, start, options={"start": start})
            for start, group in groups.items()
        )
        with earliest.app().running() as one, latest.app().running() as other:
            one.wait_until_joined()
            other.wait_until_joined()
            send(stage, topic, NEW)
            wait_for(stage, ledger, "earliest", len(OLD) + len(NEW))
            wait_for(stage, ledger, "latest", len(NEW))
        again = Member(stage.connection, topic, groups["latest"], ledger.path, "again")
        send(stage, topic, NEWER)
        with again.app().running():  # earliest, as nothing else is said
            wait_for(stage, ledger, "again", len(NEWER))
        rows = [row(ledger, name) for name in ("earliest", "latest", "again")]
    stage.fact("records handled", rows)
    stage.check(
        "earliest: all of them, those from before it joined too",
        counts(rows[0]) == (len(OLD), len(NEW), 0),
    )
    stage.check("latest: only those sent after it joined", counts(rows[1]) == (0, len(NEW), 0))
    stage.check(
        "the group of latest, told earliest now, goes on where it stopped",
        counts(rows[2]) == (0, 0, len(NEWER)),
    )


def wait_for(stage: Stage, ledger: Ledger, member: str, count: int) -> None:
    stage.wait_until(lambda: len(ledger.finished(member)) >= count, f"{member} handled {count}")


def row(ledger: Ledger, name: str) -> dict[str, object]:
    handled = [int(value) for value in ledger.finished(name)]
    return {
        "start": "earliest, in the group of latest" if name == "again" else name,
        "sent before": sum(number in OLD for number in handled),
        "sent after": sum(number in NEW for number in handled),
        "sent later still": sum(number in NEWER for number in handled),
    }


def counts(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row.values())[1:]


# --- latest, and a crash before the first commit ---


def judge_pinned(stage: Stage) -> None:
    topic, group = stage.topic("pinned", PARTITIONS), stage.group("pinned")
    plain_group = stage.group("plain")
    send(stage, topic, OLD)
    end = ends(stage, topic)
    missed = range(MISSED)
    with Ledger() as ledger:
        options = {"start": "latest", "settings": SESSION}
        member = Member(stage.connection, topic, group, ledger.path, options=options)
        with MemberProcess(member) as process:
            stage.wait_until(lambda: committed(stage, group) == end, "its beginning is committed")
            plain_before = begin_of_plain_client(stage, topic, plain_group)
            stage.say("killing the member, which has handled nothing yet, then sending records")
            process.kill()
        handled_before = ledger.begun()
        send(stage, topic, missed)
        plain_after = begin_of_plain_client(stage, topic, plain_group)
        with member.app().running():
            stage.wait_until(lambda: len(ledger.finished()) >= MISSED, "it handled what it missed")
        handled = ledger.finished()
    skipped = sum(plain_after.values()) - sum(plain_before.values())
    table = [
        crash_row("headrace", 0, MISSED - len(handled)),
        crash_row("plain client", 0, skipped),
    ]
    stage.fact("latest, and a crash before the first record", table)
    stage.check("latest: it was killed before it had handled anything", not handled_before)
    stage.check(
        "latest: what was sent while it was dead is handled, and nothing older",
        sorted(handled) == sorted(map(str, missed)),
    )
    stage.check("latest: a plain client began at the same end", plain_before == end != plain_after)
    stage.check("latest: a plain client skipped them, so they could be skipped", skipped == MISSED)


def crash_row(client: str, handled: int, skipped: int) -> dict[str, object]:
    return {
        "client": client,
        "handled before": handled,
        "sent meanwhile": MISSED,
        "skipped": skipped,
    }


def begin_of_plain_client(stage: Stage, topic: str, group: str) -> dict[int, int]:
    """Where a client that starts at latest begins; it ends before it has committed anything."""
    own = {
        "group.id": group,
        "auto.offset.reset": "latest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    begun: dict[int, int] = {}
    with contextlib.closing(Consumer(stage.connection.client_settings() | own)) as consumer:
        consumer.subscribe([topic])
        for _ in Deadline(SECONDS_FOR_PLAIN_CLIENT).polls():
            message = consumer.poll(0.1)
            error = message.error() if message is not None else None
            if message is not None and (error is None or error.code() == KafkaError._PARTITION_EOF):
                begun.setdefault(message.partition() or 0, message.offset() or 0)
            if len(begun) == PARTITIONS:
                break
    return begun


# --- all of them ---


def send(stage: Stage, topic: str, numbers: Collection[int]) -> None:
    with Producer(stage.connection) as producer:
        for number in numbers:
            producer.send(topic, str(number), partition=number % PARTITIONS)


def ends(stage: Stage, topic: str) -> dict[int, int]:
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    return {p.partition: end for p, end in stage.admin.offsets(partitions, Latest()).items()}


def committed(stage: Stage, group: str) -> dict[int, int]:
    return {p.partition: offset for p, offset in stage.admin.committed(group).items()}
