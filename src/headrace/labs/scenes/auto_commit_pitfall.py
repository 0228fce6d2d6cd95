"""With auto commit, a record that fails or is in hand at a crash is lost; by default it is not.

Auto commit commits what was handed out, not what was handled. One record in the middle is bad for
the handler of today; tomorrow's handler, in a new run of the same group, could do it. Three
consumers get the same records: the plain client's poll loop with enable.auto.commit, ours with
offsets="auto", and ours as it is by default (gap-safe). In the second act the handler hangs on the
record, and the program gets SIGKILL.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer

from headrace.clients import Producer
from headrace.errors import ConfigError, HandlerFailed
from headrace.labs.consuming import Ledger, Member, MemberProcess
from headrace.labs.stage import Stage, counts
from headrace.model import Deadline
from headrace.parallel import App, Auto, GapSafe

RECORDS = 30
BAD = 7
EVERYTHING = {str(number) for number in range(RECORDS)}
COMMIT_SECONDS = 0.2
AUTO = {"offsets": Auto(interval=COMMIT_SECONDS), "on_error": "skip"}
GAP_SAFE = {"offsets": GapSafe(interval=COMMIT_SECONDS)}
# All but the bad record are finished while it is in hand.
SIDE_BY_SIDE = {"order": "none", "concurrency": 4}
# The group waits so long for a member that died before it gives its partition to the next.
SESSION = {"settings": {"session.timeout.ms": 6_000}}


@dataclass(frozen=True)
class Outcome:
    """What two runs of one group have come to."""

    who: str
    committed_between: int
    first: list[str]
    second: list[str]

    @property
    def lost(self) -> set[str]:
        return EVERYTHING - set(self.first + self.second)

    @property
    def repeated(self) -> int:
        return counts(self.first + self.second)[1]

    def row(self) -> dict[str, object]:
        return {
            "consumer": self.who,
            "handled at first": len(self.first),
            "committed then": self.committed_between,
            "handled after the restart": len(self.second),
            "lost": ", ".join(sorted(self.lost)) or "none",
            "repeated": self.repeated,
        }


def run(stage: Stage) -> None:
    topic = stage.topic("orders", 1)
    with Producer(stage.connection) as producer:
        producer.send_many(topic, map(str, range(RECORDS))).result()
    judge_failure(stage, topic)
    judge_crash(stage, topic)
    stage.check("auto with on_error='stop' is refused when it is declared", refuses_to_stop())


def committed(stage: Stage, group: str) -> int:
    return max(stage.admin.committed(group).values(), default=0)


def at_the_end(stage: Stage, group: str) -> Callable[[], bool]:
    return lambda: committed(stage, group) == RECORDS


# --- the handler fails ---


def judge_failure(stage: Stage, topic: str) -> None:
    stage.say(f"the handler fails on record {BAD}; then a new run with one that does not")
    plain = fail_plain(stage, topic)
    auto = fail_ours(stage, topic, "ours, auto", AUTO)
    safe = fail_ours(stage, topic, "ours, gap-safe", GAP_SAFE)
    stage.fact("the handler fails on a record", [o.row() for o in (plain, auto, safe)])
    stage.check("failed, plain client, auto commit: the record is lost", plain.lost == {str(BAD)})
    stage.check("failed, ours with auto: it is lost", auto.lost == {str(BAD)})
    stage.check("failed, ours by default: nothing is lost", not safe.lost)
    stage.check("... nor repeated: the consumer stopped in order", not safe.repeated)


def fail_plain(stage: Stage, topic: str) -> Outcome:
    """The loop of many a program: poll, handle; on an error close, and let it be started again."""
    group = stage.group("plain")
    first = poll_loop(stage, topic, group, fails_on=BAD)
    between = committed(stage, group)
    second = poll_loop(stage, topic, group, fails_on=None)
    return Outcome("plain client, auto commit", between, first, second)


def poll_loop(stage: Stage, topic: str, group: str, fails_on: int | None) -> list[str]:
    handled: list[str] = []
    own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": True}
    # `close` commits, as auto commit does: whatever was handed out.
    with contextlib.closing(Consumer(stage.connection.client_settings() | own)) as consumer:
        consumer.subscribe([topic])
        for value in values(consumer):
            if value == str(fails_on):
                break  # the handler's exception, on its way up
            handled.append(value)
            if value == str(RECORDS - 1):
                break
    return handled


def values(consumer: Any) -> Any:
    deadline = Deadline(30)
    while not deadline.expired:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            yield message.value().decode()


def fail_ours(stage: Stage, topic: str, who: str, options: dict[str, Any]) -> Outcome:
    with Ledger() as ledger:
        group = stage.group("ours")
        member = Member(stage.connection, topic, group, ledger.path, "today", options=options)
        run_till_end_or_failure(stage, replace(member, fails_on={str(BAD)}))
        between = committed(stage, group)
        run_till_end_or_failure(stage, replace(member, name="tomorrow"))
        return Outcome(who, between, ledger.finished("today"), ledger.finished("tomorrow"))


def run_till_end_or_failure(stage: Stage, member: Member) -> None:
    with contextlib.suppress(HandlerFailed), member.app().running() as running:
        stage.wait_until(
            lambda: not running.alive or committed(stage, member.group) == RECORDS,
            "all is committed, or the consumer has stopped",
        )


# --- the program dies ---


def judge_crash(stage: Stage, topic: str) -> None:
    stage.say(f"the handler hangs on record {BAD}, and its program is killed")
    auto = crash(stage, topic, "ours, auto", AUTO)
    safe = crash(stage, topic, "ours, gap-safe", GAP_SAFE)
    stage.fact("SIGKILL with a record in hand", [auto.row(), safe.row()])
    stage.check("killed, with auto: the record in hand is lost", auto.lost == {str(BAD)})
    stage.check("killed, by default: nothing is lost", not safe.lost)
    stage.check(
        "by default the committed offset did not pass the record in hand",
        safe.committed_between <= BAD < auto.committed_between,
    )


def crash(stage: Stage, topic: str, who: str, options: dict[str, Any]) -> Outcome:
    with Ledger() as ledger:
        group = stage.group("killed")
        member = Member(
            stage.connection,
            topic,
            group,
            ledger.path,
            "killed",
            options=options | SIDE_BY_SIDE | SESSION,
        )
        kill_with_one_in_hand(stage, replace(member, stuck_on={str(BAD)}), ledger)
        between = committed(stage, group)
        with replace(member, name="next").app().running():
            stage.wait_until(at_the_end(stage, group), "the next one has come to the end")
        return Outcome(who, between, ledger.finished("killed"), ledger.finished("next"))


def kill_with_one_in_hand(stage: Stage, member: Member, ledger: Ledger) -> None:
    """All others are finished, and commits had their time."""
    goal = BAD if "on_error" not in member.options else RECORDS
    with MemberProcess(member) as process:
        stage.wait_until(lambda: len(ledger.finished()) == RECORDS - 1, "all but one are finished")
        stage.wait_until(lambda: committed(stage, member.group) >= goal, f"{goal} is committed")
        process.kill()


def refuses_to_stop() -> bool:
    declare = App("nowhere:1").consumer("orders", group="g", offsets="auto", on_error="stop")
    try:
        declare(lambda _value: None)
    except ConfigError as error:
        return "auto" in error.message
    return False
