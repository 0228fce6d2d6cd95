"""A commit for each batch: far fewer commits, and a crash repeats no more than what they cover.

Synchronous: the next batch begins when the broker has confirmed the last one. Each handler asks
the group's coordinator what is committed, and finds the beginning of its own batch. Asynchronous:
the next batch begins at once, and a callback hears what became of the commit. Both are killed with
SIGKILL in the middle of a batch.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from headrace.clients import Producer
from headrace.errors import HeadraceError
from headrace.labs.consuming import Ledger, Member, MemberProcess, commits_of
from headrace.labs.stage import Stage
from headrace.model import Record, TopicPartition
from headrace.parallel import App, PerBatch

RECORDS = 300
SIZE = 50
STUCK = 170
IN_ORDER: dict[str, Any] = {"order": "partition", "concurrency": 1}
SESSION: dict[str, Any] = {"settings": {"session.timeout.ms": 6_000}}


@dataclass
class Watcher:
    """A handler that asks what is committed, and a callback that hears of commits."""

    stage: Stage
    group: str
    behind: dict[int, int] = field(default_factory=dict)  # by offset: handled, not committed
    heard: list[int] = field(default_factory=list)
    errors: list[HeadraceError] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, _value: bytes, record: Record) -> None:
        found = max(self.stage.admin.committed(self.group).values(), default=0)
        self.behind[record.offset] = record.offset - found

    def on_commit(self, offsets: Mapping[TopicPartition, int], error: HeadraceError | None) -> None:
        with self._lock:
            self.heard += offsets.values()
            self.errors += [error] if error is not None else []

    def row(self, who: str) -> dict[str, object]:
        return {
            "commits": who,
            "records": len(self.behind),
            "commits stored": len(self.commits),
            "most between two": max(b - a for a, b in pairwise(self.commits)),
            "callbacks": len(self.heard),
            "most records not committed": max(self.behind.values()),
        }


def run(stage: Stage) -> None:
    topic = stage.topic("payments", 1)
    with Producer(stage.connection) as producer:
        producer.send_many(topic, map(str, range(RECORDS))).result()
    judge_batches(stage, topic)
    judge_crash(stage, topic)


# --- what is committed when ---


def judge_batches(stage: Stage, topic: str) -> None:
    stage.say(f"handling batches of {SIZE}, asking at each record what is committed")
    sync, asynchronous = (watch(stage, topic, sync=sync) for sync in (True, False))
    stage.fact(f"batches of {SIZE}", [sync.row("synchronous"), asynchronous.row("asynchronous")])
    for name, watcher in (("sync", sync), ("async", asynchronous)):
        steps = [after - before for before, after in pairwise(watcher.commits)]
        stage.check(
            f"{name}: commits rise to the end, none covers more than a batch",
            watcher.commits[-1] == RECORDS and all(0 < step <= SIZE for step in steps),
        )
        stage.check(f"{name}: far fewer commits than records", len(steps) <= RECORDS / 5)
    stage.check(
        "sync: within a batch nothing is committed, and before it everything is",
        all(began_at(sync, offset) == offset - lag for offset, lag in sync.behind.items()),
    )
    stage.check(
        "async: the callback heard of commits, without an error, and they stand there",
        bool(asynchronous.heard)
        and not asynchronous.errors
        and set(asynchronous.heard) <= set(asynchronous.commits),
    )


def began_at(watcher: Watcher, offset: int) -> int:
    """Where the batch of this offset began, by the commits."""
    return max(commit for commit in watcher.commits if commit <= offset)


def watch(stage: Stage, topic: str, *, sync: bool) -> Watcher:
    watcher = Watcher(stage, stage.group("sync" if sync else "async"))
    strategy = PerBatch(SIZE, sync=sync, on_commit=None if sync else watcher.on_commit)
    app = App(stage.connection)
    app.consumer(topic, group=watcher.group, name="watcher", offsets=strategy, **IN_ORDER)(
        watcher.handle
    )
    with app.running():
        stage.wait_until(lambda: len(watcher.behind) == RECORDS, "all is handled")
    watcher.commits = [commit.offset for commit in commits_of(stage, watcher.group)]
    return watcher


# --- what a crash repeats ---


def judge_crash(stage: Stage, topic: str) -> None:
    stage.say(f"killing programs with SIGKILL at record {STUCK}")
    table = []
    for name, sync, most in (("synchronous", True, SIZE), ("asynchronous", False, 2 * SIZE)):
        committed, begun, finished = crash(stage, topic, PerBatch(SIZE, sync=sync))
        repeated = sorted(int(v) for v, times in Counter(begun).items() if times > 1)
        table.append(
            {
                "commits": name,
                "committed": committed,
                "repeated": len(repeated),
                "from": min(repeated, default=None),
                "to": max(repeated, default=None),
                "missing": RECORDS - len(finished),
            }
        )
        stage.check(f"{name}: nothing is lost", len(finished) == RECORDS)
        stage.check(
            f"{name}: the crash repeats what was begun since the commit, {most} at most",
            repeated == list(range(committed, STUCK + 1)) and len(repeated) <= most,
        )
    stage.fact(f"SIGKILL at record {STUCK}", table)


def crash(stage: Stage, topic: str, strategy: PerBatch) -> tuple[int, list[str], set[str]]:
    """What was committed at the death, what was begun before and after, what was finished."""
    options = IN_ORDER | SESSION | {"offsets": strategy}
    with Ledger() as ledger:
        group = stage.group("killed")
        member = Member(stage.connection, topic, group, ledger.path, options=options)
        with MemberProcess(replace(member, stuck_on={str(STUCK)})) as process:
            stage.wait_until(lambda: str(STUCK) in ledger.begun(), "it hangs", every=0.02)
            process.kill()
        committed = max(stage.admin.committed(group).values(), default=0)
        with member.app().running():
            stage.wait_until(lambda: len(set(ledger.finished())) == RECORDS, "all is handled")
        return committed, ledger.begun(), set(ledger.finished())
