"""A group is as parallel as its partitions are many; a parallel consumer is as its workers are.

10,000 records, 20 ms of work for each. A plain poll loop and five members that handle one record
at a time only do a part of them, and the rest is reckoned from that. Parallel consumers do all of
them: order is kept by key, and a hundred keys are at work at once. Then members share partitions:
fewer members than partitions, as many, more. The one too many is idle until another dies.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import Consumer

from headrace.clients import Producer
from headrace.errors import HeadraceError
from headrace.labs.consuming import Ledger, Member, MemberProcess
from headrace.labs.stage import Stage
from headrace.model import Deadline, Record
from headrace.parallel import App
from headrace.parallel.engine.running import RunningApp

RECORDS = 10_000
USERS = 1_000
PARTITIONS = 5
WORK_SECONDS = 0.02
WORKERS = 100
SAMPLE = 100  # records for each member that handles one at a time
SHARED_PARTITIONS = 4
SHARED_RECORDS = 200
SESSION = {"session.timeout.ms": 6_000}
FIRST = "member-1"  # a program of its own, so that it can be killed


def run(stage: Stage) -> None:
    judge_speed(stage)
    judge_sharing(stage)


# --- how fast ---


class Handled(NamedTuple):
    """A record, as far as it matters here."""

    partition: int
    offset: int
    key: bytes


@dataclass
class Crowd:
    """What members have handled and when; and whether they kept records of one key apart."""

    who: str
    handled: dict[str, list[Handled]] = field(default_factory=dict)
    partitions: dict[str, str] = field(default_factory=dict)
    first: float = 0.0
    last: float = 0.0
    overlaps: int = 0  # a record began while another of its key was at work

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work: Counter[bytes] = Counter()

    def begin(self, record: Handled) -> None:
        with self._lock:
            self.first = self.first or time.monotonic()
            self.overlaps += self._at_work[record.key] > 0
            self._at_work[record.key] += 1

    def end(self, member: str, record: Handled) -> None:
        with self._lock:
            self.last = time.monotonic()
            self._at_work[record.key] -= 1
            self.handled.setdefault(member, []).append(record)

    @property
    def count(self) -> int:
        return sum(map(len, self.handled.values()))

    @property
    def rate(self) -> float:
        return self.count / (self.last - self.first)

    def row(self) -> dict[str, object]:
        return {
            "consumers": self.who,
            "handled": self.count,
            "records a second": round(self.rate),
            "10,000 take (s)": round(RECORDS / self.rate, 1),
            "that is": "measured" if self.count >= RECORDS else "reckoned from a part",
        }

    def member_rows(self) -> list[dict[str, object]]:
        return [
            {
                "consumers": self.who,
                "member": name,
                "partitions": self.partitions.get(name, ""),
                "handled": len(self.handled.get(name, ())),
            }
            for name in sorted(self.partitions or self.handled)
        ]


def judge_speed(stage: Stage) -> None:
    plain = poll_loop(stage)
    five = crowd(stage, "five in a group", 5, 5 * SAMPLE, workers=1)
    parallel = crowd(stage, f"one parallel, {WORKERS} workers", 1, RECORDS, WORKERS)
    both = crowd(stage, f"five parallel, {WORKERS} workers each", 5, RECORDS, WORKERS)
    every = (plain, five, parallel, both)
    stage.fact("10,000 records, 20 ms of work for each", [crowd.row() for crowd in every])
    stage.fact("who did what", [row for crowd in every for row in crowd.member_rows()])
    stage.check("five in a group are at least 2.5 times as fast as one", faster(five, plain, 2.5))
    stage.check("one parallel consumer is 20 times as fast as one", faster(parallel, plain, 20))
    stage.check("... and 4 times as fast as five in a group", faster(parallel, five, 4))
    stage.check("five parallel ones are 20 times as fast as one, too", faster(both, plain, 20))
    for one in (parallel, both):
        stage.check(f"{one.who}: every record once, keys in order", once_and_in_order(one))
    stage.check("five parallel: each member did its part", len(both.handled) == 5)


def faster(one: Crowd, other: Crowd, times: float) -> bool:
    return one.rate >= times * other.rate


def once_and_in_order(crowd: Crowd) -> bool:
    """Each record once; of each key one at a time, and the offsets rise."""
    every = [record for records in crowd.handled.values() for record in records]
    by_key: dict[bytes, list[int]] = {}
    for record in every:
        by_key.setdefault(record.key, []).append(record.offset)
    rising = all(a < b for offsets in by_key.values() for a, b in pairwise(offsets))
    return len(every) == len(set(every)) == RECORDS and rising and not crowd.overlaps


def new_topic(stage: Stage) -> str:
    return stage.topic("ecommerce.events", PARTITIONS)


def send_events(stage: Stage, topic: str) -> None:
    with Producer(stage.connection) as producer:
        dice = random.Random(7)
        records = [(f"user-{dice.randrange(USERS)}", str(n)) for n in range(RECORDS)]
        producer.send_many(topic, records).result()


def poll_loop(stage: Stage) -> Crowd:
    """The loop of many a program."""
    stage.say(f"a plain poll loop: {SAMPLE} records")
    topic = new_topic(stage)
    send_events(stage, topic)
    found = Crowd("one plain poll loop")
    own = {
        "group.id": stage.group("plain"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    deadline = Deadline(60)
    with contextlib.closing(Consumer(stage.connection.client_settings() | own)) as consumer:
        consumer.subscribe([topic])
        while found.count < SAMPLE and not deadline.expired:
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                record = Handled(message.partition(), message.offset(), message.key())
                found.begin(record)
                time.sleep(WORK_SECONDS)
                found.end("plain", record)
        numbers = sorted(p.partition for p in consumer.assignment())
        found.partitions["plain"] = ", ".join(map(str, numbers))
    return found


def crowd(stage: Stage, who: str, members: int, records: int, workers: int = 1) -> Crowd:
    """Members of one group, all in this program; records come when each has its partitions."""
    stage.say(f"{who}: {records:,} records")
    found, topic, group = Crowd(who), new_topic(stage), stage.group("crowd")
    with contextlib.ExitStack() as stack:
        running: dict[str, RunningApp] = {}
        for number in range(1, members + 1):
            name = f"member-{number}"
            app = App(stage.connection)
            order: Any = "partition" if workers == 1 else "key"
            declare = app.consumer(topic, group=group, name=name, order=order, concurrency=workers)
            declare(handler_of(name, found))
            running[name] = stack.enter_context(app.running())
        wait_until_shared(stage, running, PARTITIONS)
        found.partitions = {name: shown(numbers) for name, numbers in held(running).items()}
        send_events(stage, topic)
        stage.wait_until(lambda: found.count >= records, f"{records} are handled", every=0.02)
    return found


def handler_of(member: str, found: Crowd) -> Callable[[bytes, Record], Awaitable[None]]:
    async def handle(_value: bytes, record: Record) -> None:
        one = Handled(record.partition, record.offset, record.key or b"")
        found.begin(one)
        await asyncio.sleep(WORK_SECONDS)
        found.end(member, one)

    return handle


def held(running: Mapping[str, RunningApp]) -> dict[str, list[int]]:
    return {
        name: [p.partition for p in app.status()[0].partitions] for name, app in running.items()
    }


def wait_until_shared(stage: Stage, running: Mapping[str, RunningApp], partitions: int) -> None:
    """Each partition has one owner, and nobody has two more than another."""

    def shared() -> bool:
        numbers = [number for owned in held(running).values() for number in owned]
        sizes = [len(owned) for owned in held(running).values()]
        return sorted(numbers) == list(range(partitions)) and max(sizes) - min(sizes) <= 1

    stage.wait_until(shared, f"{len(running)} members share {partitions} partitions", every=0.05)


def shown(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


# --- who has which partitions ---


def judge_sharing(stage: Stage) -> None:
    topic, group = stage.topic("shared", SHARED_PARTITIONS), stage.group("sharing")
    timeline: list[dict[str, object]] = []
    with Ledger() as ledger, members_of(stage, topic, group, ledger) as add:
        seen: dict[int, dict[str, list[int]]] = {}
        process = add()
        for count in (2, SHARED_PARTITIONS, SHARED_PARTITIONS + 1):
            while add.count < count:
                add()
            seen[count] = settle(stage, group, count)
            timeline.append(look(f"{count} members", seen[count]))
        idle = next(name for name, owned in seen[count].items() if not owned)
        before = send_and_wait(stage, topic, ledger, "before")
        stage.say(f"killing {FIRST}, which holds {seen[count][FIRST]}")
        assert process is not None
        process.kill()
        after_death = settle(stage, group, count - 1)
        timeline.append(look(f"{FIRST} was killed", after_death))
        after = send_and_wait(stage, topic, ledger, "after")
    stage.fact(f"who has which of {SHARED_PARTITIONS} partitions", timeline)
    stage.fact(
        "records handled",
        [
            {"member": n, f"before {FIRST} died": before[n], "after": after[n]}
            for n in sorted(seen[count])
        ],
    )
    judge_shares(stage, seen, after_death, idle)
    stage.check(f"{idle}, idle before, handled records after", before[idle] == 0 < after[idle])
    stage.check(
        "every record was handled once, before and after",
        before.total() == after.total() == SHARED_RECORDS,
    )


def judge_shares(
    stage: Stage,
    seen: Mapping[int, Mapping[str, list[int]]],
    after: Mapping[str, list[int]],
    idle: str,
) -> None:
    fewer, equal, more = ([len(owned) for owned in shares.values()] for shares in seen.values())
    stage.check("more partitions than members: each has several", sorted(fewer) == [2, 2])
    stage.check("as many: each has one", set(equal) == {1})
    stage.check("fewer: one member is idle", sorted(more) == [0] + [1] * SHARED_PARTITIONS)
    stage.check(
        "when one dies, the idle one takes over", FIRST not in after and len(after[idle]) == 1
    )


class Joining:
    """Adds members to a group: the first as a program of its own, the others here."""

    def __init__(
        self, stage: Stage, topic: str, group: str, ledger: Ledger, stack: contextlib.ExitStack
    ) -> None:
        self.count = 0
        self._stage, self._stack = stage, stack
        self._topic, self._group, self._ledger = topic, group, ledger

    def __call__(self) -> MemberProcess | None:
        self.count += 1
        name = f"member-{self.count}"
        options = {"settings": SESSION | {"client.id": name}, "offsets": "per-batch"}
        member = Member(
            self._stage.connection,
            self._topic,
            self._group,
            self._ledger.path,
            name,
            options=options,
        )
        if name == FIRST:
            return self._stack.enter_context(MemberProcess(member))
        self._stack.enter_context(member.app().running())
        return None


@contextlib.contextmanager
def members_of(stage: Stage, topic: str, group: str, ledger: Ledger) -> Iterator[Joining]:
    with contextlib.ExitStack() as stack:
        yield Joining(stage, topic, group, ledger, stack)


def shares_of(stage: Stage, group: str) -> dict[str, list[int]]:
    """Who has what, as the group's coordinator sees it."""
    try:
        members = stage.admin.group(group).members
    except HeadraceError:
        return {}
    return {m.client_id: sorted(p.partition for p in m.partitions) for m in sorted_members(members)}


def sorted_members(members: Sequence[Any]) -> list[Any]:
    return sorted(members, key=lambda member: str(member.client_id))


def settle(stage: Stage, group: str, members: int) -> dict[str, list[int]]:
    """Wait until so many members share all partitions evenly."""

    def settled() -> bool:
        shares = shares_of(stage, group)
        numbers = sorted(number for owned in shares.values() for number in owned)
        sizes = [len(owned) for owned in shares.values()]
        return (
            len(shares) == members
            and numbers == list(range(SHARED_PARTITIONS))
            and max(sizes) - min(sizes) <= 1
        )

    stage.wait_until(settled, f"{members} members share {SHARED_PARTITIONS} partitions")
    return shares_of(stage, group)


def look(when: str, shares: Mapping[str, list[int]]) -> dict[str, object]:
    names = [f"member-{number}" for number in range(1, SHARED_PARTITIONS + 2)]
    row: dict[str, object] = {"when": when}
    return row | {name: shown(shares[name]) if name in shares else "-" for name in names}


def send_and_wait(stage: Stage, topic: str, ledger: Ledger, lot: str) -> Counter[str]:
    """Send records to all partitions, and wait until they are handled; by whom."""
    with Producer(stage.connection) as producer:
        for number in range(SHARED_RECORDS):
            producer.send(topic, f"{lot}-{number}", partition=number % SHARED_PARTITIONS)

    def of_this_lot() -> Counter[str]:
        return Counter(
            entry.member
            for entry in ledger.entries()
            if entry.what == "finished" and entry.value.startswith(lot)
        )

    stage.wait_until(lambda: of_this_lot().total() >= SHARED_RECORDS, "all is handled")
    return of_this_lot()
