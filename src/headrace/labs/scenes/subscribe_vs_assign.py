"""Subscribers share a topic and stand in for each other; assigned partitions are one's own affair.

Two consumers of a group, both ways. As subscribers they are members: the group deals the
partitions out, each to one of them, and when one leaves, the other has them all. With partitions
given by number there are no members, and nobody deals out: a partition that both name is handled
twice, and one whose consumer has left waits for it. Offsets are kept for the group both ways, so
it goes on where it stopped.
"""

from collections import Counter

from headrace.clients import Producer
from headrace.labs.consuming import Ledger, Member
from headrace.labs.stage import Stage
from headrace.model import TopicPartition
from headrace.parallel.engine.running import RunningApp

PARTITIONS = 4
PER_PARTITION = 50
LOT = PARTITIONS * PER_PARTITION
ALL = list(range(PARTITIONS))
# What the assigned consumers name: partition 1 both of them, 0 and the last two one of them.
FIRST, SECOND = [0, 1], [1, 2, 3]
ALONE, SHARED = 0, 1


def run(stage: Stage) -> None:
    topic = stage.topic("shared", PARTITIONS)
    with Ledger() as ledger:
        subscribed = judge_subscribers(stage, topic, ledger)
    topic = stage.topic("assigned", PARTITIONS)
    with Ledger() as ledger:
        assigned = judge_assigned(stage, topic, ledger)
    stage.fact("who has what", subscribed + assigned)


# --- subscribers ---


def judge_subscribers(stage: Stage, topic: str, ledger: Ledger) -> list[dict[str, object]]:
    group = stage.group("subscribers")
    first = Member(stage.connection, topic, group, ledger.path, "first")
    second = Member(stage.connection, topic, group, ledger.path, "second")
    with second.app().running() as staying:
        with first.app().running() as leaving:
            stage.wait_until(
                lambda: len(held(leaving)) == len(held(staying)) == PARTITIONS / 2,
                "the group has dealt the partitions out",
            )
            shares = held(leaving), held(staying)
            members = len(stage.admin.group(group).members)
            send(stage, topic, lot=0)
            stage.wait_until(lambda: len(ledger.finished()) >= LOT, "the first lot is handled")
            stage.say("one subscriber leaves")
        stage.wait_until(lambda: held(staying) == ALL, "the other has all partitions")
        send(stage, topic, lot=1)
        stage.wait_until(lambda: len(ledger.finished()) >= 2 * LOT, "the second lot is handled")
        after = held(staying)
    stage.check("subscribed: the group has two members", members == 2)
    stage.check(
        "subscribed: every partition belongs to one of them", sorted(shares[0] + shares[1]) == ALL
    )
    stage.check("subscribed: when one leaves, the other has all of them", after == ALL)
    stage.check(
        "subscribed: every record is handled, and none twice",
        Counter(ledger.finished()) == Counter(map(str, range(2 * LOT))),
    )
    return [
        row(ledger, "subscribed, first", members, shares[0], None),
        row(ledger, "subscribed, second", members, shares[1], after),
    ]


# --- partitions given by number ---


def judge_assigned(stage: Stage, topic: str, ledger: Ledger) -> list[dict[str, object]]:
    group = stage.group("assigned")
    first = assigned_member(stage, topic, group, ledger, "first", FIRST)
    second = assigned_member(stage, topic, group, ledger, "second", SECOND)
    with second.app().running() as staying:
        with first.app().running() as leaving:
            leaving.wait_until_joined()
            staying.wait_until_joined()
            shares = held(leaving), held(staying)
            send(stage, topic, lot=0)
            both = PER_PARTITION * (len(FIRST) + len(SECOND))
            stage.wait_until(lambda: len(ledger.finished()) >= both, "the first lot is handled")
            members = len(stage.admin.group(group).members)
            stage.say("one assigned consumer leaves")
        send(stage, topic, lot=1)
        judge_waiting(stage, topic, group, ledger)
        after = held(staying)
        again = assigned_member(stage, topic, group, ledger, "again", FIRST)
        with again.app().running():
            stage.wait_until(
                lambda: per_partition(ledger, "again")[ALONE] >= PER_PARTITION,
                "what has waited is handled",
            )
    stage.check("assigned: the group has no members", members == 0)
    stage.check("assigned: both have what they named", shares == (FIRST, SECOND))
    stage.check("assigned: when one leaves, the other has what it had", after == SECOND)
    stage.check(
        "assigned: started again, the first goes on where the group stopped",
        per_partition(ledger, "again") == {ALONE: PER_PARTITION},
    )
    return [
        row(ledger, "assigned, first", members, shares[0], None),
        row(ledger, "assigned, second", members, shares[1], after),
        row(ledger, "assigned, again", members, FIRST, None),
    ]


def judge_waiting(stage: Stage, topic: str, group: str, ledger: Ledger) -> None:
    """What happened to the partition that both had, and to the one whose consumer is gone."""
    partitions = [TopicPartition(topic, partition) for partition in SECOND]
    end = dict.fromkeys(partitions, 2 * PER_PARTITION)
    stage.wait_until(
        lambda: end.items() <= stage.admin.committed(group).items(),
        "the consumer that is left has committed all of its partitions",
    )
    times = Counter(ledger.finished())
    twice = {int(value) % PARTITIONS for value, count in times.items() if count > 1}
    waiting = {number % PARTITIONS for number in range(2 * LOT) if str(number) not in times}
    stage.fact("assigned: handled twice", f"{sum(c > 1 for c in times.values())} records")
    stage.fact("assigned: handled by nobody while one was gone", f"{2 * LOT - len(times)} records")
    stage.check(
        "assigned: the partition that both named was handled twice, no other",
        twice == {SHARED} and sum(c > 1 for c in times.values()) == PER_PARTITION,
    )
    stage.check(
        "assigned: the partition of the one that left waits for it",
        waiting == {ALONE} and 2 * LOT - len(times) == PER_PARTITION,
    )


def assigned_member(
    stage: Stage, topic: str, group: str, ledger: Ledger, name: str, partitions: list[int]
) -> Member:
    options = {"partitions": partitions}
    return Member(stage.connection, topic, group, ledger.path, name, options=options)


# --- both ---


def send(stage: Stage, topic: str, lot: int) -> None:
    with Producer(stage.connection) as producer:
        for number in range(lot * LOT, (lot + 1) * LOT):
            producer.send(topic, str(number), partition=number % PARTITIONS)


def held(running: RunningApp) -> list[int]:
    return [partition.partition for partition in running.status()[0].partitions]


def per_partition(ledger: Ledger, member: str) -> Counter[int]:
    return Counter(
        entry.partition
        for entry in ledger.entries()
        if entry.what == "finished" and entry.member == member
    )


def row(
    ledger: Ledger, name: str, members: int, at_first: list[int], after: list[int] | None
) -> dict[str, object]:
    handled = per_partition(ledger, name.partition(", ")[2])
    return {
        "consumer": name,
        "members of the group": members,
        "partitions": ", ".join(map(str, at_first)),
        "after the first left": "-" if after is None else ", ".join(map(str, after)),
        **{f"handled in {partition}": handled[partition] for partition in ALL},
    }
