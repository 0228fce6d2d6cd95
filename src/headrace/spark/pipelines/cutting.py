"""A bounded range of offsets, cut into batches. Pure.

What comes next depends on what is left, and on nothing else: a run that was cut short goes on with
the same batch.
"""

from collections.abc import Iterator

from headrace.errors import BadInput
from headrace.spark.pipelines.accounts import Replay, Standing
from headrace.spark.pipelines.checkpoints import Offsets, Ranges


class Cuts:
    """The batches of a replay, from where its tables end."""

    def __init__(self, whole: Ranges, ends: Offsets, most: int) -> None:
        self.batches = list(cut(rest(whole, ends), most))

    @property
    def open_batch(self) -> Ranges | None:
        """The batch that may have been begun before."""
        return self.batches[0] if self.batches else None

    def ranges(self, batch: int) -> Ranges:
        return self.batches[batch]


def rest(whole: Ranges, ends: Offsets) -> Ranges:
    """What is left of a range, if tables end there.

    >>> rest({"clicks": {"0": (3, 9), "1": (0, 4)}}, {"clicks": {"0": 5, "1": 4}})
    {'clicks': {'0': (5, 9), '1': (4, 4)}}
    """
    return {
        topic: {
            partition: (min(max(begin, ends.get(topic, {}).get(partition, begin)), end), end)
            for partition, (begin, end) in places.items()
        }
        for topic, places in whole.items()
    }


def cut(left: Ranges, most: int) -> Iterator[Ranges]:
    """Batches of at most so many offsets; each has all partitions, by what is left of them.

    >>> list(cut({"clicks": {"0": (0, 4), "1": (7, 9)}}, 3))
    [{'clicks': {'0': (0, 2), '1': (7, 8)}}, {'clicks': {'0': (2, 4), '1': (8, 9)}}]
    """
    while size(left):
        batch = _first(left, most)
        yield batch
        ends = {t: {p: end for p, (_, end) in places.items()} for t, places in batch.items()}
        left = rest(left, ends)


def size(ranges: Ranges) -> int:
    """How many offsets there are.

    >>> size({"clicks": {"0": (0, 4), "1": (7, 9)}})
    6
    """
    return sum(end - begin for places in ranges.values() for begin, end in places.values())


def _first(left: Ranges, most: int) -> Ranges:
    total = size(left)
    if total <= most:
        return left
    sizes = {(t, p): end - begin for t, of in left.items() for p, (begin, end) in of.items()}
    shares = {place: most * count // total for place, count in sizes.items()}
    by_need = sorted(sizes, key=lambda place: (shares[place] - sizes[place], place))
    for place in by_need[: most - sum(shares.values())]:
        shares[place] += 1
    return {
        topic: {p: (begin, begin + shares[topic, p]) for p, (begin, _) in places.items()}
        for topic, places in left.items()
    }


def continued(wanted: Replay, found: Standing | None, lake: str) -> Replay:
    """The replay that counts: one that was begun in this lake goes on as it was begun.

    `latest` has moved on since then, and retention may have moved `earliest`.
    """
    if found is None:
        return wanted
    begun = found.replay
    if begun is None:
        raise BadInput(
            f"the tables in {lake} were made by `headrace stream`: a replay would mix with them",
            hint="give the replay another --lake; --missing puts back what these tables lack",
        )
    same_topic = begun.ranges.keys() == wanted.ranges.keys()
    if same_topic and (begun.asked == wanted.asked or begun.ranges == wanted.ranges):
        return begun
    begin, end = begun.asked
    raise BadInput(
        f"{lake} holds another replay: of topic {', '.join(begun.ranges)}, --from {begin} "
        f"--to {end}",
        hint="give each range another --lake",
    )
