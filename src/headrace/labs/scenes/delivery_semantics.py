"""Committed first, a crash loses records; committed afterwards, it repeats them and loses none.

The same crash each time: a program gets SIGKILL while it handles record 57 of 200, and is started
again. With a plain client the order of two lines decides. Commit what was polled, then handle it:
at most once. Handle, then commit: at least once. Headrace commits what is finished, so nothing is
lost; how much is repeated depends on how often it commits.
"""

import multiprocessing
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from headrace.clients import Producer
from headrace.clients.reader import to_record
from headrace.labs.consuming import Ledger, Member, MemberProcess
from headrace.labs.stage import Stage
from headrace.model import TopicPartition
from headrace.parallel import GapSafe, PerRecord

RECORDS = 200
BATCH = 100
DEADLY = 57
SECONDS_EACH = 0.02
COMMIT_EVERY = 0.25
ALL = [str(number) for number in range(RECORDS)]


@dataclass(frozen=True)
class Way:
    """One way to keep offsets. Without a strategy it is a plain client."""

    name: str
    guarantee: str
    commit_first: bool = False
    strategy: GapSafe | PerRecord | None = None


MOST = Way("plain: commit, then handle", "at most once", commit_first=True)
LEAST = Way("plain: handle, then commit", "at least once")
GAP_SAFE = Way("headrace: gap-safe", "at least once", strategy=GapSafe(COMMIT_EVERY))
PER_RECORD = Way("headrace: per-record", "at least once", strategy=PerRecord())
WAYS = (MOST, LEAST, GAP_SAFE, PER_RECORD)


@dataclass(frozen=True)
class Outcome:
    """What became of the records."""

    before: Counter[str]  # begun before the crash
    begun: Counter[str]
    finished: Counter[str]

    @property
    def lost(self) -> list[str]:
        return [value for value in ALL if value not in self.finished]

    @property
    def repeated(self) -> list[str]:
        return [value for value in ALL if self.begun[value] > 1]

    def row(self, way: Way) -> dict[str, object]:
        return {
            "offsets": way.name,
            "guarantee": way.guarantee,
            "begun before the crash": self.before.total(),
            "lost": len(self.lost),
            "which": span(self.lost),
            "repeated": len(self.repeated),
            "these": span(self.repeated),
        }


def span(values: list[str]) -> str:
    """The first and the last of them.

    >>> span(["7"]), span(["7", "8", "9"]), span([])
    ('7', '7 to 9', '-')
    """
    if len(values) < 2:
        return values[0] if values else "-"
    return f"{values[0]} to {values[-1]}"


def run(stage: Stage) -> None:
    topic = stage.topic("payments")
    with Producer(stage.connection) as producer:
        producer.send_many(topic, ALL).result()
    with ThreadPoolExecutor(len(WAYS)) as side_by_side:
        found = side_by_side.map(lambda way: crash_and_return(stage, topic, way), WAYS)
        outcomes = dict(zip(WAYS, found, strict=True))
    stage.fact(
        f"killed while handling {DEADLY}", [outcome.row(way) for way, outcome in outcomes.items()]
    )
    stage.check(
        f"the same crash each time: {DEADLY} was begun, nothing behind it was",
        all(o.before == Counter(ALL[: DEADLY + 1]) for o in outcomes.values()),
    )
    judge_most(stage, outcomes[MOST])
    judge_least(stage, outcomes)


def judge_most(stage: Stage, outcome: Outcome) -> None:
    stage.check("at most once: no record is handled twice", not outcome.repeated)
    stage.check(
        "at most once: the record it died on, and the rest of what it had polled, are lost",
        outcome.lost == ALL[DEADLY:BATCH],
    )


def judge_least(stage: Stage, outcomes: dict[Way, Outcome]) -> None:
    least = [outcome for way, outcome in outcomes.items() if way is not MOST]
    stage.check("at least once: no record is lost", not any(outcome.lost for outcome in least))
    stage.check(
        "at least once: the record it died on is handled again",
        all(str(DEADLY) in outcome.repeated for outcome in least),
    )
    stage.check(
        "plain: the whole batch that was not committed is repeated",
        outcomes[LEAST].repeated == ALL[: DEADLY + 1],
    )
    stage.check(
        "gap-safe: less, what was finished since the last commit",
        len(outcomes[GAP_SAFE].repeated) < len(outcomes[LEAST].repeated),
    )
    stage.check(
        "per-record: only the record it died on", outcomes[PER_RECORD].repeated == [str(DEADLY)]
    )


def crash_and_return(stage: Stage, topic: str, way: Way) -> Outcome:
    """Kill the program while it handles the deadly record; then let it do the rest."""
    group = stage.group(way.name.replace(": ", "-").replace(", ", "-").replace(" ", "-"))
    stage.say(f"{way.name}: killed while handling {DEADLY}, then started again")
    with Ledger() as ledger:
        member = a_member(stage, topic, group, ledger, way)
        with program(replace(member, stuck_on={str(DEADLY)}), way) as first:
            stage.wait_until(
                lambda: str(DEADLY) in ledger.begun(), f"{DEADLY} is begun", every=0.01
            )
            first.kill()
        before = Counter(ledger.begun())
        with program(member, way):
            end = {TopicPartition(topic, 0): RECORDS}
            stage.wait_until(
                lambda: ALL[-1] in ledger.finished() and stage.admin.committed(group) == end,
                "the rest is handled and committed",
            )
        return Outcome(before, Counter(ledger.begun()), Counter(ledger.finished()))


def a_member(stage: Stage, topic: str, group: str, ledger: Ledger, way: Way) -> Member:
    """One record at a time, in order. The partition is given by number: no session to wait for."""
    options: dict[str, Any] = {"partitions": [0], "order": "partition", "concurrency": 1}
    if way.strategy is not None:
        options["offsets"] = way.strategy
    return Member(
        stage.connection, topic, group, ledger.path, seconds=SECONDS_EACH, options=options
    )


def program(member: Member, way: Way) -> "MemberProcess | PlainProcess":
    """The consumer as a process of its own; it ends with the `with` block."""
    return PlainProcess(member, way) if way.strategy is None else MemberProcess(member)


# --- the plain client ---


class PlainProcess:
    """A program with a plain client and a poll loop, which can be killed."""

    def __init__(self, member: Member, way: Way) -> None:
        self._process = multiprocessing.get_context("spawn").Process(
            target=poll_loop, args=(member, way.commit_first), daemon=True
        )

    def __enter__(self) -> "PlainProcess":
        self._process.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def poll_loop(member: Member, commit_first: bool) -> None:
    """What everybody writes; where the commit stands makes the guarantee."""
    (declared,) = member.app().consumers  # for its handler, so that all write the same ledger
    own = {"group.id": member.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(member.connection.client_settings() | own)
    consumer.assign([ClientPartition(member.topic, 0)])
    while True:
        messages = [m for m in consumer.consume(BATCH, timeout=5) if m.error() is None]
        if messages and commit_first:
            consumer.commit(asynchronous=False)
        for message in messages:
            declared.handler(message.value(), to_record(message))
        if messages and not commit_first:
            consumer.commit(asynchronous=False)
