"""With a commit for each record, a crash repeats no more than one record of each key.

While records are handled one by one, each handler asks the group's coordinator what is committed:
everything before its own record, always. Each commit stands in the offsets topic, and there is one
for each record. Then programs are killed with SIGKILL, one with a single worker, one with eight
that work by key, and another goes on in their place: it repeats what had begun and was not yet
committed, which is one record at most for each of the keys.
"""

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.clients import Producer
from headrace.labs.consuming import Ledger, Member, MemberProcess, commits_of
from headrace.labs.stage import Stage
from headrace.model import Record
from headrace.parallel import App, OffsetStrategy

RECORDS = 100
STUCK = 60
KEYS = 20
WORKERS = 8
ONE_BY_ONE: dict[str, Any] = {"order": "partition", "concurrency": 1}
BY_KEY: dict[str, Any] = {"order": "key", "concurrency": WORKERS}
SESSION: dict[str, Any] = {"settings": {"session.timeout.ms": 6_000}}


@dataclass
class Watcher:
    """A handler that asks what is committed at the moment when it is called."""

    stage: Stage
    group: str
    committed: dict[int, int] = field(default_factory=dict)

    def __call__(self, _value: bytes, record: Record) -> None:
        found = self.stage.admin.committed(self.group)
        self.committed[record.offset] = max(found.values(), default=0)


def run(stage: Stage) -> None:
    topic = stage.topic("payments", 1)
    with Producer(stage.connection) as producer:
        producer.send_many(topic, [(key_of(n), str(n)) for n in range(RECORDS)]).result()
    judge_commits(stage, topic)
    judge_crash(stage, topic)


def key_of(number: int) -> str:
    return f"key-{number % KEYS}"


# --- one commit for each record ---


def judge_commits(stage: Stage, topic: str) -> None:
    stage.say("handling records one by one, asking each time what is committed")
    watched, table = {}, []
    for strategy in ("per-record", "gap-safe"):
        watcher, row = watch(stage, topic, strategy)
        watched[strategy] = watcher
        table.append(row)
    stage.fact("one by one, each commit counted in the offsets topic", table)
    watcher = watched["per-record"]
    exact = sum(committed == offset for offset, committed in watcher.committed.items())
    stage.fact("records that began with all before them committed", f"{exact} of {RECORDS}")
    stage.check(
        "when a record begins, all before it is committed, to the last one",
        watcher.committed == {n: n for n in range(RECORDS)},
    )
    commits = [commit.offset for commit in commits_of(stage, watcher.group)]
    stage.check(
        "there is one commit for each record, in order", commits == list(range(RECORDS + 1))
    )


def watch(
    stage: Stage, topic: str, offsets: str | OffsetStrategy
) -> tuple[Watcher, dict[str, Any]]:
    watcher = Watcher(stage, stage.group("watched"))
    app = App(stage.connection)
    declare = app.consumer(
        topic, group=watcher.group, name="watcher", offsets=offsets, **ONE_BY_ONE
    )
    declare(watcher)
    with app.running() as running:
        running.wait_until_joined()
        began = time.monotonic()
        stage.wait_until(lambda: len(watcher.committed) == RECORDS, "all is handled", every=0.02)
        seconds = time.monotonic() - began
    return watcher, {
        "offsets": offsets,
        "records": RECORDS,
        # The first commit says where the group begins.
        "commits": len(commits_of(stage, watcher.group)) - 1,
        "ms a record": round(seconds / RECORDS * 1000, 2),
    }


# --- what a crash repeats ---


def judge_crash(stage: Stage, topic: str) -> None:
    stage.say("killing programs with SIGKILL, and letting others go on")
    single = crash(stage, topic, "one worker", ONE_BY_ONE)
    eight = crash(stage, topic, f"{WORKERS} workers by key", BY_KEY)
    stage.fact(f"SIGKILL with record {STUCK} in hand", [single.row(), eight.row()])
    stage.check("no record is lost", not single.missing and not eight.missing)
    stage.check("one worker: only the record in hand is repeated", single.repeated == {str(STUCK)})
    keys = [key_of(int(value)) for value in eight.repeated]
    # A record holds its key until it is committed, not its worker: that goes on with other keys.
    stage.check(
        f"{WORKERS} workers: no more than one record of each key is repeated",
        len(keys) == len(set(keys)) and str(STUCK) in eight.repeated,
    )


@dataclass(frozen=True)
class Crash:
    """What was begun, before and after."""

    who: str
    before: list[str]
    after: list[str]
    finished: set[str]

    @property
    def missing(self) -> set[str]:
        return {str(number) for number in range(RECORDS)} - self.finished

    @property
    def repeated(self) -> set[str]:
        return {value for value, times in Counter(self.before + self.after).items() if times > 1}

    def row(self) -> dict[str, object]:
        return {
            "consumer": self.who,
            "begun before": len(self.before),
            "begun after": len(self.after),
            "repeated": ", ".join(sorted(self.repeated, key=int)),
            "missing": len(self.missing),
        }


def crash(stage: Stage, topic: str, who: str, how: dict[str, Any]) -> Crash:
    options = how | SESSION | {"offsets": "per-record"}
    with Ledger() as ledger:
        group = stage.group("killed")
        member = Member(
            stage.connection, topic, group, ledger.path, "killed", seconds=0.01, options=options
        )
        with MemberProcess(replace(member, stuck_on={str(STUCK)})) as process:
            stage.wait_until(lambda: str(STUCK) in ledger.begun(), "it hangs", every=0.02)
            process.kill()
        with replace(member, name="next").app().running():
            stage.wait_until(lambda: len(set(ledger.finished())) == RECORDS, "all is handled")
        finished = set(ledger.finished())
        return Crash(who, ledger.begun("killed"), ledger.begun("next"), finished)
