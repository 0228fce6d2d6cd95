"""A partitioner that reads headers keeps each region's events in partitions of its own.

100 events carry the headers region (us-east-0 to us-east-2) and priority (high, normal). Each
region owns a third of the partitions, and the key's hash chooses within it: a consumer near a
region reads that region alone, and the events of one key in it stay in order. The same ten keys
come from all regions, so a partitioner that looked at the key alone would mix them.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.clients import Acknowledged, Delivery, Outgoing, Producer, ToPartition
from headrace.clients.partitioners import murmur2_partition
from headrace.errors import BadInput
from headrace.labs.stage import Stage
from headrace.model import Header, Record

EVENTS = 100
KEYS = 10
REGIONS = ("us-east-0", "us-east-1", "us-east-2")
PARTITIONS_PER_REGION = 3
HIGH_SHARE = 0.1
SHOWN = 8
SEED = 7


class ByRegion:
    """Gives each region a range of partitions; the key's hash chooses within the range."""

    def __init__(self, regions: Sequence[str]) -> None:
        self._regions = list(regions)

    def __call__(self, record: ToPartition) -> int:
        owned = self.owned_by(text_header(record.headers, "region"), record.partitions)
        return owned[murmur2_partition(record.key, len(owned))]

    def owned_by(self, region: str, partitions: int) -> range:
        """The partitions of a region. A region that nobody planned for is an error."""
        if region not in self._regions:
            raise BadInput(
                f"region {region!r} owns no partitions",
                hint=f"there are {', '.join(self._regions)}",
            )
        share = partitions // len(self._regions)
        begin = self._regions.index(region) * share
        return range(begin, begin + share)


@dataclass(frozen=True)
class Written:
    """What the callback was told of an event."""

    event: Outgoing
    where: Acknowledged

    def row(self) -> dict[str, object]:
        return {
            "event": (self.event.value or b"").decode(),
            "region": text_header(self.event.headers, "region"),
            "priority": text_header(self.event.headers, "priority"),
            "key": (self.event.key or b"").decode(),
            "partition": self.where.partition,
            "offset": self.where.offset,
        }


def run(stage: Stage) -> None:
    partitions = PARTITIONS_PER_REGION * len(REGIONS)
    topic = stage.topic("regional_events", partitions)
    by_region = ByRegion(REGIONS)
    events = make_events(topic)
    written, stranger_refused = send(stage, by_region, events)
    records = stage.records(topic)

    first = sorted(written, key=lambda told: told.event.value or b"")[:SHOWN]
    stage.fact("what the callbacks were told, the first events", [told.row() for told in first])
    stage.fact("partitions that would mix regions by key alone", mixed_by_key_alone(records))
    tell_regions(stage, by_region, partitions, records)
    judge_places(stage, by_region, partitions, records)
    stage.check(
        "every event is stored once, with key and headers as they were sent",
        sorted(content(r) for r in records) == sorted(content(event) for event in events),
    )
    stored = {(r.partition, r.offset): content(r) for r in records}
    stage.check(
        "partition and offset told to the callback are where the event is stored",
        len(written) == EVENTS
        and all(stored.get(w.where[1:3]) == content(w.event) for w in written),
    )
    stage.check(
        "an event of a region that owns no partitions is refused, and not stored", stranger_refused
    )


def make_events(topic: str) -> list[Outgoing]:
    """Regions in turn, keys in turn, so that every key comes from every region."""
    dice = random.Random(SEED)
    events = []
    for number in range(EVENTS):
        region = REGIONS[number % len(REGIONS)]
        priority = "high" if dice.random() < HIGH_SHARE else "normal"
        headers = [("region", region.encode()), ("priority", priority.encode())]
        key = f"key-{number % KEYS}".encode()
        events.append(Outgoing(topic, f"event-{number:02}".encode(), key, headers))
    return events


def send(
    stage: Stage, by_region: ByRegion, events: Sequence[Outgoing]
) -> tuple[list[Written], bool]:
    """Send all; what the callbacks were told, and whether a strange region was refused."""
    written: list[Written] = []

    def settled(delivery: Delivery) -> None:
        if delivery.failed:
            return
        told = Written(delivery.record, delivery.result())
        written.append(told)
        if text_header(told.event.headers, "priority") == "high":
            region = text_header(told.event.headers, "region")
            place = f"partition {told.where.partition}, offset {told.where.offset}"
            stage.say(f"high priority in {region}: {place}")

    refused = False
    with Producer(stage.connection, partitioner=by_region) as producer:
        for event in events:
            producer.send(*event, on_delivery=settled)
        try:
            producer.send(events[0].topic, "stray", "key-0", [("region", b"us-west-0")])
        except BadInput:
            refused = True
    return written, refused


def tell_regions(
    stage: Stage, by_region: ByRegion, partitions: int, records: Sequence[Record]
) -> None:
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[text_header(record.headers, "region")].append(record)
    table = []
    for region in REGIONS:
        owned = by_region.owned_by(region, partitions)
        priorities = Counter(text_header(r.headers, "priority") for r in found[region])
        counts = Counter(r.partition for r in found[region])
        table.append(
            {
                "region": region,
                "owns partitions": f"{owned[0]} to {owned[-1]}",
                "events": len(found[region]),
                "high": priorities["high"],
                "normal": priorities["normal"],
                "stored, partition: events": ", ".join(
                    f"{partition}: {count}" for partition, count in sorted(counts.items())
                ),
            }
        )
    stage.fact("regions, from the records read back", table)


def mixed_by_key_alone(records: Sequence[Record]) -> str:
    """In how many partitions regions would meet if the key's hash alone chose."""
    partitions = PARTITIONS_PER_REGION * len(REGIONS)
    regions: dict[int, set[str]] = defaultdict(set)
    for record in records:
        partition = murmur2_partition(record.key, partitions)
        regions[partition].add(text_header(record.headers, "region"))
    mixed = sum(len(found) > 1 for found in regions.values())
    return f"{mixed} of {partitions}"


def judge_places(
    stage: Stage, by_region: ByRegion, partitions: int, records: Sequence[Record]
) -> None:
    used: dict[str, set[int]] = defaultdict(set)
    of_key: dict[tuple[str, bytes | None], set[int]] = defaultdict(set)
    for record in records:
        region = text_header(record.headers, "region")
        used[region].add(record.partition)
        of_key[region, record.key].add(record.partition)
    stage.check(
        "every region's events are in its own partitions only",
        set(used) == set(REGIONS)
        and all(used[r] <= set(by_region.owned_by(r, partitions)) for r in REGIONS),
    )
    stage.check(
        "no partition holds events of two regions",
        sum(map(len, used.values())) == len(set().union(*used.values())),
    )
    stage.check(
        "within a region a key is always in the same partition",
        all(len(places) == 1 for places in of_key.values()),
    )
    stage.check(
        "the key's hash spreads a region's events over all its partitions",
        all(len(places) == PARTITIONS_PER_REGION for places in used.values()),
    )


def text_header(headers: Sequence[Header], name: str) -> str:
    """A header's value as text; empty if there is none."""
    return next((value or b"" for key, value in headers if key == name), b"").decode()


def content(record: Record | Outgoing) -> tuple[bytes, bytes, tuple[Header, ...]]:
    return record.value or b"", record.key or b"", tuple(record.headers)
