"""Told to stop, a consumer ends its work, commits and leaves the group at once; nothing runs twice.

Once by a call from another thread, once by SIGTERM to a program. Each time records are being
handled and many more wait. Afterwards the group has no members, and the next one is given the
partitions without waiting for a session to run out, goes on with the first record that was not
handled, and repeats none. Beside it a program that gets SIGKILL: its partitions stay taken until
its session is over.
"""

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from headrace.clients import Producer
from headrace.errors import GroupNotFound
from headrace.labs.consuming import Ledger, Member, MemberProcess
from headrace.labs.stage import Stage
from headrace.parallel import App

PARTITIONS = 4
RECORDS = 240
SECONDS_EACH = 0.1
WORKERS = 8
STOP_AFTER = 40  # records, in the middle of the work
SESSION = 30.0  # of those that are asked to stop
SESSION_OF_KILLED = 6.0


@dataclass(frozen=True)
class Stop:
    """What was seen of one stop."""

    how: str
    session: float
    running: int  # records in hand when it was asked to
    seconds_to_end: float
    members_left: int
    unfinished: int  # begun, and not finished at its end
    handled: int
    seconds_to_next: float  # until the next member had the partitions

    def row(self) -> dict[str, object]:
        return {
            "how": self.how,
            "in hand": self.running,
            "seconds to end": round(self.seconds_to_end, 2),
            "members left": self.members_left,
            "cut short": self.unfinished,
            "handled": self.handled,
            "session timeout": self.session,
            "seconds until the next had them": round(self.seconds_to_next, 2),
        }


def run(stage: Stage) -> None:
    stops = [
        judge_thread(stage),
        judge_process(stage, "SIGTERM"),
        judge_process(stage, "SIGKILL"),
    ]
    stage.fact("stops", [stop.row() for stop in stops])
    for stop in stops[:2]:
        judge_grace(stage, stop)
    killed = stops[2]
    stage.check(
        "SIGKILL, to compare: records were cut short, and the member stayed in the group",
        killed.unfinished > 0 and killed.members_left == 1,
    )
    stage.check(
        "SIGKILL, to compare: the next one waited for half the session timeout or more",
        killed.seconds_to_next > SESSION_OF_KILLED / 2,
    )


def judge_grace(stage: Stage, stop: Stop) -> None:
    stage.check(f"{stop.how}: it came in the middle of the work", 0 < stop.handled < RECORDS)
    stage.check(
        f"{stop.how}: what was begun was finished", stop.running > 0 and not stop.unfinished
    )
    stage.check(f"{stop.how}: the group was left", stop.members_left == 0)
    stage.check(
        f"{stop.how}: the next one had the partitions in a third of the session timeout or less",
        stop.seconds_to_next < SESSION / 3,
    )


# --- from another thread ---


def judge_thread(stage: Stage) -> Stop:
    topic, group = prepare(stage, "thread")
    with Ledger() as ledger:
        member = a_member(stage, topic, group, ledger, SESSION)
        app = member.app()
        asked: list[tuple[float, int]] = []
        stopper = threading.Thread(target=ask_to_stop, args=(stage, app, ledger, asked))
        stopper.start()
        stage.say("running an app that another thread stops")
        app.run()
        ended = time.monotonic()
        stopper.join()
        (at, running) = asked[0]
        return finish(stage, "stop()", member, ledger, running, ended - at)


def ask_to_stop(stage: Stage, app: App, ledger: Ledger, asked: list[tuple[float, int]]) -> None:
    try:
        wait_for_the_middle(stage, ledger)
        asked.append((time.monotonic(), in_hand(ledger)))
    finally:
        app.stop()


# --- by a signal ---


def judge_process(stage: Stage, how: str) -> Stop:
    topic, group = prepare(stage, how)
    with Ledger() as ledger:
        session = SESSION if how == "SIGTERM" else SESSION_OF_KILLED
        member = a_member(stage, topic, group, ledger, session)
        with MemberProcess(member) as process:
            wait_for_the_middle(stage, ledger)
            stage.say(f"{how} to a program that handles records")
            running, asked = in_hand(ledger), time.monotonic()
            process.stop() if how == "SIGTERM" else process.kill()
            seconds = time.monotonic() - asked
        if how == "SIGTERM":
            stage.check("SIGTERM: the program ended by itself", process.exit_code == 0)
        return finish(stage, how, member, ledger, running, seconds)


# --- all of them ---


def prepare(stage: Stage, name: str) -> tuple[str, str]:
    topic = stage.topic(name, PARTITIONS)
    with Producer(stage.connection) as producer:
        for number in range(RECORDS):
            producer.send(topic, str(number), partition=number % PARTITIONS)
    return topic, stage.group(name)


def a_member(stage: Stage, topic: str, group: str, ledger: Ledger, session: float) -> Member:
    settings = {"session.timeout.ms": int(session * 1000), "heartbeat.interval.ms": 1000}
    options: dict[str, Any] = {"order": "none", "concurrency": WORKERS, "settings": settings}
    return Member(
        stage.connection, topic, group, ledger.path, seconds=SECONDS_EACH, options=options
    )


def wait_for_the_middle(stage: Stage, ledger: Ledger) -> None:
    stage.wait_until(
        lambda: len(ledger.finished()) >= STOP_AFTER and in_hand(ledger) > 0,
        "it is in the middle of its work",
        every=0.01,
    )


def in_hand(ledger: Ledger) -> int:
    return len(ledger.begun()) - len(ledger.finished())


def finish(
    stage: Stage, how: str, member: Member, ledger: Ledger, running: int, seconds: float
) -> Stop:
    """The next member does the rest; every record is looked at then."""
    members_left, unfinished = members_of(stage, member.group), in_hand(ledger)
    before = set(ledger.finished())
    asked = time.monotonic()
    with member.app().running() as next_one:
        stage.wait_until(
            lambda: len(next_one.status()[0].partitions) == PARTITIONS, "the next one has them"
        )
        seconds_to_next = time.monotonic() - asked
        stage.wait_until(lambda: len(set(ledger.finished())) == RECORDS, "the rest is handled")
    times = Counter(ledger.begun())
    repeated = sum(count > 1 for count in times.values())
    stage.fact(f"{how}: begun twice", repeated)
    if how != "SIGKILL":
        stage.check(f"{how}: every record was handled, none of them twice", times == all_once())
    return Stop(
        how,
        SESSION_OF_KILLED if how == "SIGKILL" else SESSION,
        running,
        seconds,
        members_left,
        unfinished,
        len(before),
        seconds_to_next,
    )


def all_once() -> Counter[str]:
    return Counter(map(str, range(RECORDS)))


def members_of(stage: Stage, group: str) -> int:
    try:
        return len(stage.admin.group(group).members)
    except GroupNotFound:
        return 0
