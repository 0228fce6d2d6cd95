"""Which partitions stand still, and what each of them waits for."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.model import TopicPartition
from headrace.parallel.engine.crew import Running
from headrace.parallel.engine.desk import Desk, Unit, Work


class Stall(NamedTuple):
    """A partition with something to do that has finished nothing for so long."""

    partition: TopicPartition
    offset: int | None
    seconds: float
    waits_for: str


def find_stalls(
    desk: Desk,
    running: Iterable[Running],
    after: float,
    now: float,
    handler: str,
) -> list[Stall]:
    """Look at every partition; under the desk's lock."""
    in_hand = {(unit[0], offset): since for unit, since in running for offset in offsets_of(unit)}
    stalls = []
    for work in desk.works.values():
        if not work.unfinished and (work.end or 0) <= work.position:
            work.progress_at = now  # nothing to do is not a stall, nor the beginning of one
        seconds = now - work.progress_at
        if seconds < after:
            continue
        oldest = work.assignment.tracker.oldest
        if oldest is None:
            stalls.append(
                Stall(work.partition, work.position, seconds, "the broker sends no records")
            )
        else:
            since = in_hand.get((work, oldest))
            waits_for = _waits_for(work, oldest, since, now, handler)
            stalls.append(Stall(work.partition, oldest, seconds, waits_for))
    return stalls


def offsets_of(unit: Unit) -> list[int]:
    """The offsets of a task, or of a bundle's tasks."""
    return [unit[1]] if isinstance(unit[1], int) else [task[1] for task in unit[1]]


def _waits_for(work: Work, oldest: int, since: float | None, now: float, handler: str) -> str:
    if since is not None:
        return f"{handler} has been running on {work.partition}@{oldest} for {now - since:.0f} s"
    if any(offset == oldest for offset, _ in work.held):
        return f"{work.partition}@{oldest} waits for room in the commit's map"
    if any(oldest in offsets_of(unit) for unit in work.ready):
        return f"{work.partition}@{oldest} waits for a free worker, or for the rate limit"
    return f"{work.partition}@{oldest} waits for its turn"
