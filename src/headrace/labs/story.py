"""The demo: the whole story on one cluster, told step by step.

Events of a shop flow into a replicated topic. In the middle a broker is killed, and comes back.
At the end every event is accounted for, by count and by identity.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from headrace.clients import Acknowledged, Admin, Delivery, Producer, Reader
from headrace.errors import HeadraceError
from headrace.local import LocalCluster
from headrace.model import Deadline
from headrace.observe import Progress

TOPIC = "ecommerce.events"
PARTITIONS = 5
EVENTS = 50_000
USERS = 2_000
KINDS = ("view", "cart", "remove_from_cart", "purchase")
SHARES = (93, 4, 1, 2)


@dataclass(frozen=True)
class Account:
    """Every event accounted for: what was sent, what was promised, what is there."""

    sent: int
    acknowledged: int
    read: int
    duplicates: int
    missing: int
    balanced: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Story:
    """What the demo saw."""

    account: Account
    killed_broker: int
    seconds_to_write: float
    seconds_to_read: float
    per_partition: dict[int, int]
    per_kind: dict[str, int]
    leaders_before: list[int | None]
    leaders_after_kill: list[int | None]


def events(count: int, seed: int = 7) -> Iterator[dict[str, Any]]:
    """Events of a shop, the same for the same seed."""
    dice = random.Random(seed)
    for number in range(count):
        kind = dice.choices(KINDS, SHARES)[0]
        user = int(USERS * dice.random() ** 2)  # some come far more often than others
        yield {"id": number, "userid": user, "eventType": kind, "price": dice.randint(99, 99_999)}


def tell(cluster: LocalCluster, progress: Progress, count: int = EVENTS) -> Story:
    """Act the story out; returns what was seen."""
    admin = Admin(cluster.bootstrap)
    progress.step(f"creating topic {TOPIC}: {PARTITIONS} partitions, 3 copies of each")
    admin.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
    victim = admin.topic(TOPIC).partitions[0].leader or 1
    leaders_before = _leaders(admin)

    progress.step(f"sending {count:,} events, killing broker {victim} half-way")
    started = time.monotonic()
    acknowledged, leaders_after_kill = _send_all(cluster, admin, count, victim)
    seconds_to_write = time.monotonic() - started

    progress.step(f"starting broker {victim} again")
    cluster.start(victim)
    progress.step("reading everything back")
    started = time.monotonic()
    found, per_partition, per_kind = _read_all(cluster)
    return Story(
        account=reconcile(count, acknowledged, found),
        killed_broker=victim,
        seconds_to_write=seconds_to_write,
        seconds_to_read=time.monotonic() - started,
        per_partition=dict(sorted(per_partition.items())),
        per_kind=dict(per_kind.most_common()),
        leaders_before=leaders_before,
        leaders_after_kill=leaders_after_kill,
    )


def reconcile(sent: int, acknowledged: int, found: Counter[int]) -> Account:
    """Balanced if each event sent was acknowledged and stands in the topic exactly once."""
    read = sum(found.values())
    duplicates = read - len(found)
    missing = sum(1 for number in range(sent) if number not in found)
    balanced = sent == acknowledged == read and not duplicates and not missing
    return Account(sent, acknowledged, read, duplicates, missing, balanced)


def _send_all(
    cluster: LocalCluster, admin: Admin, count: int, victim: int
) -> tuple[int, list[int | None]]:
    written: list[Acknowledged] = []

    def settled(delivery: Delivery) -> None:
        if not delivery.failed:
            written.append(delivery.result())

    leaders: list[int | None] = []
    with Producer(cluster.bootstrap) as producer:
        for event in events(count):
            if event["id"] == count // 2:
                cluster.kill(victim)
            producer.send(TOPIC, orjson.dumps(event), key=str(event["userid"]), on_delivery=settled)
        for _ in Deadline(30).polls(every=0.2):
            leaders = _leaders(admin)
            if victim not in leaders and None not in leaders:
                break
    return len(written), leaders


def _read_all(cluster: LocalCluster) -> tuple[Counter[int], Counter[int], Counter[str]]:
    found: Counter[int] = Counter()
    per_partition: Counter[int] = Counter()
    per_kind: Counter[str] = Counter()
    with Reader(TOPIC, connection=cluster.bootstrap) as reader:
        for batch in reader.batches():
            for record in batch:
                event = orjson.loads(record.value or b"{}")
                found[event["id"]] += 1
                per_partition[record.partition] += 1
                per_kind[event["eventType"]] += 1
    return found, per_partition, per_kind


def _leaders(admin: Admin) -> list[int | None]:
    try:
        return [partition.leader for partition in admin.topic(TOPIC).partitions]
    except HeadraceError:  # the broker asked may be the one that just died
        return []
