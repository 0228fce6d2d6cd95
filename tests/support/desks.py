"""A desk with records on it, called as the engine calls it: under its lock."""

from headrace.model import TopicPartition
from headrace.parallel.engine.desk import Desk, Limits

A, B, C = (TopicPartition("clicks", number) for number in range(3))
PLENTY = Limits(1_000_000, 1 << 30)


def make_desk(order="none", concurrency=4, limits=PLENTY, partitions=(A,), **more):
    return opened(Desk(order, concurrency, limits, **more), partitions)


def opened(desk, partitions):
    desk.lock.acquire()  # everything is called under it
    for partition in partitions:
        desk.assign(partition, 0, (), now=0.0)
    return desk


def fill(desk, partition, offsets, keys=None, size=1):
    offsets = list(offsets)
    keys = [None] * len(offsets) if keys is None else list(keys)
    desk.add(partition, offsets, keys, [bytes(size)] * len(offsets))


def places(units):
    return [(unit[0].partition, unit[1]) for unit in units]


def offsets_of(units):
    return [unit[1] for unit in units]


def commit(desk, partition):
    return desk.works[partition].assignment.commit()
