"""When a consumer of a group is killed, the others take its partitions and go on where it stopped.

Three members, each a program of its own, share six partitions under a steady load. One gets
SIGKILL. The group hears nothing more of it, and after the session timeout deals its partitions to
the other two; those handle their own all the while. Every record is accounted for by what the
members wrote down: none is missing, and only what the dead one had not committed is handled again.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.clients import Producer
from headrace.labs.consuming import Entry, Ledger, Load, Member, MemberProcess, by_turns
from headrace.labs.stage import Stage

PARTITIONS = 6
NAMES = ("first", "second", "third")
VICTIM = "second"
SESSION_MS = 6_000
RECORDS_PER_SECOND = 120
AT_FIRST = 300  # records handled before the kill
AFTERWARDS = 300  # and after the partitions have moved

Shares = Mapping[str, list[int]]


@dataclass(frozen=True)
class Death:
    """What was seen of it: shares before and after, and what was committed between."""

    before: Shares
    after: Shares
    committed: Mapping[int, int]
    killed_at: float
    moved_at: float

    @property
    def orphans(self) -> list[int]:
        """The partitions of the killed one."""
        return self.before[VICTIM]


def run(stage: Stage) -> None:
    topic, group = stage.topic("orders", PARTITIONS), stage.group("orders")
    with Ledger() as ledger, contextlib.ExitStack() as stack:
        processes = {
            name: stack.enter_context(MemberProcess(member(stage, topic, group, ledger, name)))
            for name in NAMES
        }
        stage.wait_until(lambda: is_settled(stage, group, len(NAMES)), "three members share")
        with (
            Producer(stage.connection) as producer,
            Load(by_turns(producer, topic, PARTITIONS), RECORDS_PER_SECOND) as load,
        ):
            death = strike(stage, group, ledger, processes[VICTIM])
            goal = load.sent + AFTERWARDS
            stage.wait_until(lambda: load.sent >= goal, "work goes on")
        stage.wait_until(
            lambda: len(set(ledger.finished())) == load.sent, "every record is handled", seconds=20
        )
        entries = ledger.entries()
    judge(stage, entries, death, load.sent)


def member(stage: Stage, topic: str, group: str, ledger: Ledger, name: str) -> Member:
    settings = {"session.timeout.ms": SESSION_MS, "client.id": name}
    options = {"order": "partition", "settings": settings}
    return Member(stage.connection, topic, group, ledger.path, name, options=options)


def strike(stage: Stage, group: str, ledger: Ledger, victim: MemberProcess) -> Death:
    """Kill a member and wait until the others have its partitions."""
    stage.wait_until(lambda: len(ledger.finished()) >= AT_FIRST, "all are at work", every=0.05)
    before = shares(stage, group)
    stage.say(f"killing the {VICTIM} member, which has partitions {before[VICTIM]}")
    victim.kill()
    killed_at = time.time()
    committed = {p.partition: offset for p, offset in stage.admin.committed(group).items()}
    stage.wait_until(lambda: is_settled(stage, group, len(NAMES) - 1), "its partitions have moved")
    after = shares(stage, group)
    stage.say(f"the others have them after {time.time() - killed_at:.1f} s")
    return Death(before, after, committed, killed_at, time.time())


def shares(stage: Stage, group: str) -> dict[str, list[int]]:
    """The partitions of each member, as the group's coordinator tells."""
    members = stage.admin.group(group).members
    return {m.client_id: sorted(p.partition for p in m.partitions) for m in members}


def is_settled(stage: Stage, group: str, members: int) -> bool:
    """Whether so many members have all partitions among them, each some."""
    found = shares(stage, group)
    dealt = sorted(partition for share in found.values() for partition in share)
    return len(found) == members and all(found.values()) and dealt == list(range(PARTITIONS))


# --- judging ---


def judge(stage: Stage, entries: list[Entry], death: Death, sent: int) -> None:
    finished = [entry for entry in entries if entry.what == "finished"]
    times = Counter(entry.value for entry in finished)
    repeated = {entry.partition for entry in finished if times[entry.value] > 1}
    resumed = {p: first_of_heir(finished, p) for p in death.orphans}
    stage.fact("members", [row(name, death, finished) for name in NAMES])
    stage.fact(
        "the killed one's partitions",
        [
            {"partition": p, "committed": death.committed.get(p), "went on at": resumed[p]}
            for p in death.orphans
        ],
    )
    stage.fact("seconds until they had moved", round(death.moved_at - death.killed_at, 1))
    stage.fact("sent, handled, handled twice", [sent, len(times), len(finished) - len(times)])
    stage.check("no record is missing", set(times) == set(map(str, range(sent))))
    stage.check(
        "the killed one's partitions went to both others, which kept their own",
        all(set(death.before[name]) < set(death.after[name]) for name in NAMES if name != VICTIM),
    )
    stage.check(
        "each went on at the offset that was committed",
        all(resumed[p] == death.committed.get(p) for p in death.orphans),
    )
    stage.check(
        "only records of the killed one are handled again, none of the others'",
        repeated <= set(death.orphans),
    )
    stage.check("the others never stood still for it", handled_on(finished, death))


def handled_on(finished: list[Entry], death: Death) -> bool:
    """Whether the others handled records of each of their partitions until all had moved."""
    own = {p for name, share in death.before.items() if name != VICTIM for p in share}
    between = {e.partition for e in finished if death.killed_at < e.at < death.moved_at}
    return own <= between


def first_of_heir(finished: list[Entry], partition: int) -> int | None:
    """The first offset that another member than the killed one handled there."""
    others = [e.offset for e in finished if e.partition == partition and e.member != VICTIM]
    return min(others, default=None)


def row(name: str, death: Death, finished: list[Entry]) -> dict[str, object]:
    return {
        "member": name,
        "partitions before": ", ".join(map(str, death.before[name])),
        "after": ", ".join(map(str, death.after.get(name, ()))) or "killed",
        "handled": sum(entry.member == name for entry in finished),
    }
