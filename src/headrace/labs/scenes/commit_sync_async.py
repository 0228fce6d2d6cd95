"""A synchronous commit is certain and costs its wait; an asynchronous one is cheap, and a hope.

The same records are committed one by one, in batches with a wait for each answer, and in batches
without. That is the cost. The meaning shows when there is no answer: the broker is killed while
records are handled. Who waits stands still; who does not goes on, with nothing to show for it.
Then the program is killed too, the broker comes back, and another program repeats what the first
one had handled in vain.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer

from headrace.clients import Producer
from headrace.errors import HeadraceError
from headrace.labs.consuming import Ledger, Member, MemberProcess, commits_of
from headrace.labs.stage import Stage, counts
from headrace.model import Deadline, TopicPartition
from headrace.parallel import App, OffsetStrategy, PerBatch, PerRecord

NEEDS_FAULTS = True
RECORDS = 40
SIZE = 20
HANDLER_SECONDS = 0.04
AT_RISK = 160  # records that are handled in the presence of death
SECONDS_WITHOUT_BROKER = 2.0
IN_ORDER: dict[str, Any] = {"order": "partition", "concurrency": 1}
SESSION: dict[str, Any] = {"settings": {"session.timeout.ms": 6_000}}
EACH, SYNC, ASYNC = "each record", "batches, synchronous", "batches, asynchronous"
# Finished when the broker dies: the second batch is under way, and more are at hand.
BEFORE_THE_DEATH = {EACH: 5, SYNC: SIZE + 2, ASYNC: SIZE + 2}


@dataclass(frozen=True)
class Cost:
    """What a way to commit took for all records, without any work on them."""

    how: str
    commits: int
    seconds: float
    callbacks: int | None = None

    def row(self) -> dict[str, object]:
        return {
            "how": self.how,
            "records": RECORDS,
            "commits": self.commits,
            "callbacks": self.callbacks,
            "ms a record": round(self.seconds / RECORDS * 1000, 2),
        }


def run(stage: Stage) -> None:
    judge_cost(stage, topic_with(stage, RECORDS))
    judge_meaning(stage, topic_with(stage, AT_RISK))


def topic_with(stage: Stage, records: int) -> str:
    topic = stage.topic("payments", 1)
    with Producer(stage.connection) as producer:
        producer.send_many(topic, map(str, range(records))).result()
    return topic


# --- what it costs ---


def judge_cost(stage: Stage, topic: str) -> None:
    stage.say(f"committing {RECORDS} records in several ways")
    answers: list[HeadraceError | None] = []

    def heard(_offsets: Mapping[TopicPartition, int], error: HeadraceError | None) -> None:
        answers.append(error)

    each_sync = plain_cost(stage, topic, "plain client, each record, synchronous", wait=True)
    each_async = plain_cost(stage, topic, "plain client, each record, asynchronous", wait=False)
    each = cost(stage, topic, "ours, each record", PerRecord())
    sync = cost(stage, topic, f"ours, {SYNC}", PerBatch(SIZE))
    without = cost(stage, topic, f"ours, {ASYNC}", PerBatch(SIZE, sync=False, on_commit=heard))
    without = replace(without, callbacks=len(answers))
    every = [each_sync, each_async, each, sync, without]
    stage.fact("the cost", [one.row() for one in every])
    stage.check("each record: as many commits as records", each.commits == RECORDS)
    stage.check(
        "batches: fewer commits, but one for each batch at least",
        all(RECORDS / SIZE <= one.commits <= RECORDS / 5 for one in (sync, without)),
    )
    stage.check("to wait for each record costs more than to wait for none", slower(each, without))
    stage.check("the same is true of the plain client", slower(each_sync, each_async))
    stage.check(
        "the callback heard of asynchronous commits, and of no error",
        bool(answers) and not any(answers),
    )


def slower(one: Cost, other: Cost) -> bool:
    return one.seconds > other.seconds


def cost(stage: Stage, topic: str, how: str, strategy: OffsetStrategy) -> Cost:
    group, handled = stage.group("cost"), list[float]()

    def handle(_value: bytes) -> None:
        handled.append(time.monotonic())

    app = App(stage.connection)
    app.consumer(topic, group=group, name="cost", offsets=strategy, **IN_ORDER)(handle)
    with app.running():
        stage.wait_until(lambda: len(handled) == RECORDS, "all is handled", every=0.02)
        stage.wait_until(lambda: committed(stage, group) == RECORDS, "all is committed")
    return Cost(how, commits(stage, group), handled[-1] - handled[0])


def plain_cost(stage: Stage, topic: str, how: str, *, wait: bool) -> Cost:
    group, deadline = stage.group("plain"), Deadline(60)
    own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    handled: list[float] = []
    with closing(Consumer(stage.connection.client_settings() | own)) as consumer:
        consumer.subscribe([topic])
        while len(handled) < RECORDS and not deadline.expired:
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                handled.append(time.monotonic())
                consumer.commit(message, asynchronous=not wait)
    return Cost(how, commits(stage, group, pinned=False), handled[-1] - handled[0])


def commits(stage: Stage, group: str, *, pinned: bool = True) -> int:
    """Commits in the offsets topic; not the first of ours, which says where the group begins."""
    return len(commits_of(stage, group)) - pinned


def committed(stage: Stage, group: str) -> int:
    return max(stage.admin.committed(group).values(), default=0)


# --- what it means ---


@dataclass(frozen=True)
class Death:
    """What a program did before and after its broker died, and what the next one did."""

    how: str
    before: int
    vain: int
    committed: int
    repeated: int
    missing: int

    def row(self) -> dict[str, object]:
        return {
            "how": self.how,
            "handled while the broker lived": self.before,
            "after it died": self.vain,
            "committed": self.committed,
            "repeated by the next": self.repeated,
            "missing": self.missing,
        }


def judge_meaning(stage: Stage, topic: str) -> None:
    ways = {EACH: PerRecord(), SYNC: PerBatch(SIZE), ASYNC: PerBatch(SIZE, sync=False)}
    with Ledger() as one, Ledger() as two, Ledger() as three:
        ledgers = dict(zip(ways, (one, two, three), strict=True))
        members = {
            how: Member(
                stage.connection,
                topic,
                stage.group("killed"),
                ledgers[how].path,
                "killed",
                seconds=HANDLER_SECONDS,
                options=IN_ORDER | SESSION | {"offsets": strategy},
            )
            for how, strategy in ways.items()
        }
        before = lose_broker_and_programs(stage, members, ledgers)
        deaths = go_on(stage, members, ledgers, before)
    stage.fact("broker and program killed", [death.row() for death in deaths])
    each, sync, without = deaths
    stage.check("nothing is lost in any way", not any(death.missing for death in deaths))
    stage.check("each record: at most one is repeated", each.repeated <= 1)
    stage.check(f"synchronous: at most a batch ({SIZE}) is repeated", sync.repeated <= SIZE)
    # The one waits at the end of its batch, the other at the end of the next.
    stage.check(
        "asynchronous: it went on for longer without an answer, and a batch at least is repeated",
        without.vain > sync.vain and without.repeated >= SIZE,
    )


def lose_broker_and_programs(
    stage: Stage, members: Mapping[str, Member], ledgers: Mapping[str, Ledger]
) -> dict[str, int]:
    """Kill the broker, then the programs; how much each had finished when the broker died."""
    try:
        with ExitStack() as programs:
            for member in members.values():
                programs.enter_context(MemberProcess(member))
            wait_for_all(stage, ledgers, BEFORE_THE_DEATH)
            stage.say("killing the broker while records are handled")
            stage.cluster.kill(1)
            before = {how: len(ledger.finished()) for how, ledger in ledgers.items()}
            time.sleep(SECONDS_WITHOUT_BROKER)  # the fault itself, not a wait for something
            stage.say("killing the programs as well")
    finally:
        stage.say("starting the broker again")
        stage.cluster.start(1)
    return before


def wait_for_all(stage: Stage, ledgers: Mapping[str, Ledger], wanted: Mapping[str, int]) -> None:
    """Wait until each has handled as many records as are wanted of it."""
    stage.wait_until(
        lambda: all(len(set(ledgers[how].finished())) >= wanted[how] for how in ledgers),
        "all have handled what they should",
        every=0.05,
    )


def go_on(
    stage: Stage,
    members: Mapping[str, Member],
    ledgers: Mapping[str, Ledger],
    before: Mapping[str, int],
) -> list[Death]:
    """Let another program of each group take over and come to the end."""
    done = {how: len(ledger.finished()) for how, ledger in ledgers.items()}
    # Not asked of the coordinator: librdkafka's admin client crashes (SIGSEGV) on the answer of
    # one that is only just loading its groups.
    found = {how: commits_of(stage, member.group)[-1].offset for how, member in members.items()}
    with ExitStack() as programs:
        for member in members.values():
            quick = replace(member, name="next", seconds=0.0)
            programs.enter_context(quick.app().running())
        wait_for_all(stage, ledgers, dict.fromkeys(ledgers, AT_RISK))
    deaths = []
    for how, ledger in ledgers.items():
        distinct, repeats = counts(ledger.finished())
        vain, missing = done[how] - before[how], AT_RISK - len(distinct)
        deaths.append(Death(how, before[how], vain, found[how], repeats, missing))
    return deaths
