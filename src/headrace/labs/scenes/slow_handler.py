"""A handler slower than max.poll.interval.ms gets a poll loop thrown out of its group; ours stays.

Two consumers have the same settings and the same record, whose handling takes longer than the
group waits for a poll. The plain client's loop cannot poll while it handles: the group takes its
partition away, refuses its commit, and hands the record out again. In ours another thread polls.
"""

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException

from headrace.clients import Producer
from headrace.errors import HeadraceError
from headrace.labs.stage import Stage
from headrace.model import Deadline
from headrace.observe.events import Event, Revoked
from headrace.parallel import App

MOST_BETWEEN_POLLS_MS = 6_000  # the shortest session that brokers allow
HANDLER_SECONDS = 9.0
SETTINGS = {
    "max.poll.interval.ms": MOST_BETWEEN_POLLS_MS,
    "session.timeout.ms": MOST_BETWEEN_POLLS_MS,
}
THROWN_OUT = "_MAX_POLL_EXCEEDED"


@dataclass
class Account:
    """What became of a consumer and its record."""

    who: str
    group: str
    handed_out: int = 0
    lost_partition: bool = False
    errors: list[str] = field(default_factory=list)
    commit: str = "none"
    members: set[str] = field(default_factory=set)  # as the coordinator named them, over time

    def row(self) -> dict[str, object]:
        return {
            "consumer": self.who,
            "handed out": self.handed_out,
            "lost its partition": "yes" if self.lost_partition else "no",
            "client's error": ", ".join(self.errors) or "none",
            "commit": self.commit,
            "members seen": len(self.members),
        }


def run(stage: Stage) -> None:
    topic = stage.topic("slow", 1)
    with Producer(stage.connection) as producer:
        producer.send(topic, "takes its time").result()
    plain = PollLoop(stage, topic, Account("plain client's loop", stage.group("plain")))
    ours = Account("ours", stage.group("ours"))
    stage.say(f"handling takes {HANDLER_SECONDS:g} s, the group waits {MOST_BETWEEN_POLLS_MS} ms")
    with plain:
        run_ours(stage, topic, ours)
    judge(stage, plain.account, ours)


def watch(stage: Stage, account: Account) -> None:
    """Who is in the group now, if anybody."""
    with contextlib.suppress(HeadraceError):
        account.members |= {member.id for member in stage.admin.group(account.group).members}


# --- the poll loop of many a program ---


class PollLoop:
    """Poll, handle, commit, on a thread, until the record has come a second time."""

    def __init__(self, stage: Stage, topic: str, account: Account) -> None:
        self.account = account
        self._stage = stage
        self._topic = topic
        self._thread = threading.Thread(target=self._work, name="poll-loop")

    def __enter__(self) -> "PollLoop":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.join()

    def _work(self) -> None:
        own = {
            "group.id": self.account.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        settings = self._stage.connection.client_settings() | SETTINGS | own
        deadline = Deadline(4 * HANDLER_SECONDS)
        with contextlib.closing(Consumer(settings)) as consumer:
            consumer.subscribe([self._topic], on_lost=self._lost)
            while self.account.handed_out < 2 and not deadline.expired:
                message = consumer.poll(0.1)
                if message is not None:
                    self._take(consumer, message)
            watch(self._stage, self.account)

    def _lost(self, _consumer: Any, _partitions: list[Any]) -> None:
        self.account.lost_partition = True

    def _take(self, consumer: Any, message: Any) -> None:
        if message.error():
            self.account.errors.append(message.error().name())
            return
        self.account.handed_out += 1
        if self.account.handed_out == 1:
            watch(self._stage, self.account)
            time.sleep(HANDLER_SECONDS)  # the handler
            self.account.commit = commit(consumer, message)


def commit(consumer: Any, message: Any) -> str:
    try:
        consumer.commit(message, asynchronous=False)
    except KafkaException as error:
        return str(error.args[0].name())
    return "accepted"


# --- ours ---


def run_ours(stage: Stage, topic: str, account: Account) -> None:
    finished = threading.Event()
    running_still = threading.Event()
    running_still.set()

    def on_event(event: Event) -> None:
        if isinstance(event, Revoked) and running_still.is_set():
            account.lost_partition = True

    def handle(_value: bytes) -> None:
        account.handed_out += 1
        watch(stage, account)
        time.sleep(HANDLER_SECONDS)
        watch(stage, account)
        finished.set()

    app = App(stage.connection, on_event=on_event)
    app.consumer(topic, group=account.group, name="ours", settings=SETTINGS)(handle)
    with app.running():
        stage.wait_until(finished.is_set, "the handler has returned")
        stage.wait_until(lambda: committed(stage, account.group) == 1, "it is committed")
        watch(stage, account)
        running_still.clear()
    account.commit = "accepted" if committed(stage, account.group) == 1 else "missing"


def committed(stage: Stage, group: str) -> int:
    return max(stage.admin.committed(group).values(), default=0)


def judge(stage: Stage, plain: Account, ours: Account) -> None:
    stage.fact("a record that takes longer than max.poll.interval.ms", [plain.row(), ours.row()])
    stage.check("the poll loop is told that it was thrown out", THROWN_OUT in plain.errors)
    stage.check("its commit is refused", plain.commit not in ("accepted", "none"))
    stage.check("its record is handed out again", plain.handed_out == 2)
    stage.check("ours keeps its partition, as the same member", kept(ours))
    stage.check("its record is handled once, and committed", once(ours))


def kept(account: Account) -> bool:
    return not account.lost_partition and len(account.members) == 1


def once(account: Account) -> bool:
    return account.handed_out == 1 and account.commit == "accepted"
