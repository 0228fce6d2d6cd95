"""Record by record: which records are in no table. Pure; memory is eight bytes a row.

Offsets of a partition come in their order, from the topic and from the table, so that they are
walked side by side. Only records that are found in no table are kept, with their ids: those are
duplicates of other rows, or missing.
"""

import re
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_ROW = re.compile(r"([0-9a-f]{16}):([0-9]{1,18})")


class Run(NamedTuple):
    """Records one after the other; offsets between them may be markers of transactions."""

    partition: int
    first: int
    last: int
    size: int


class Lines(NamedTuple):
    """Lines of a file one after the other."""

    file: str
    first: int
    last: int
    size: int


class Lonely(NamedTuple):
    """A record whose place is in no table; `number` counts the records of its partition."""

    partition: int
    number: int
    offset: int
    row: str


@dataclass(frozen=True)
class Seen:
    """What the comparison has found."""

    records: int
    duplicates: int
    missing: Sequence[Run] = ()
    missing_lines: Sequence[Lines] = ()
    twice: Sequence[Run] = ()
    unexplained: Sequence[Run] = ()
    foreign: Sequence[Run] = ()
    chunks: Mapping[str, int] = field(default_factory=dict)

    @property
    def missing_count(self) -> int:
        return sum(run.size for run in self.missing)


class Walk:
    """Compares the records of a topic with the places that tables hold.

    `places` are the offsets of rows and dead letters by partition, in order; `ends` is up to where
    the tables have read; `begins` is what the topic still has. `chunks` tells records of files
    from others, if there are files.
    """

    def __init__(
        self,
        places: Mapping[int, Sequence[int]],
        begins: Mapping[int, int],
        ends: Mapping[int, int],
        chunks: Container[str] | None = None,
    ) -> None:
        self._places, self._ends, self._chunks = places, ends, chunks
        self._at = {p: bisect_left(of, begins.get(p, 0)) for p, of in places.items()}
        self._numbers: Counter[int] = Counter()
        self.records = 0
        self.lonely: list[Lonely] = []
        self._by_chunk: Counter[str] = Counter()
        self._foreign: list[Lonely] = []
        self._twice: dict[int, array[int]] = defaultdict(lambda: array("q"))
        self._unexplained: dict[int, array[int]] = defaultdict(lambda: array("q"))

    def take(self, partition: int, offset: int, row: str) -> None:
        """The next record of a partition."""
        number = self._numbers[partition]
        self._numbers[partition] += 1
        if self._chunks is not None and not self._is_of_file(row):
            self._foreign.append(Lonely(partition, number, offset, row))
        if offset >= self._ends.get(partition, 0):
            return
        self.records += 1
        if not self._has(partition, offset):
            self.lonely.append(Lonely(partition, number, offset, row))

    def end(self, known: Callable[[set[str]], set[str]], paths: Mapping[str, str]) -> Seen:
        """What was found. `known` gives those of some row ids that the table has."""
        for partition in self._places:
            self._has(partition, self._ends.get(partition, 0))
        missing = self._missing(known)
        return Seen(
            records=self.records,
            duplicates=len(self.lonely) - len(missing),
            missing=runs(missing),
            missing_lines=lines((each.row for each in missing), paths),
            twice=_runs_of_places(self._twice),
            unexplained=_runs_of_places(self._unexplained),
            foreign=runs(self._foreign),
            chunks=self._by_chunk,
        )

    def _has(self, partition: int, offset: int) -> bool:
        """Go on to this offset; what stands before it belongs to no record."""
        places, at = self._places.get(partition, ()), self._at.get(partition, 0)
        while at < len(places) and places[at] < offset:
            self._unexplained[partition].append(places[at])
            at += 1
        found = 0
        while at < len(places) and places[at] == offset:
            at, found = at + 1, found + 1
        if found > 1:
            self._twice[partition].append(offset)
        self._at[partition] = at
        return found > 0

    def _is_of_file(self, row: str) -> bool:
        chunk = row.partition(":")[0]
        known = chunk in (self._chunks or ())
        if known:
            self._by_chunk[chunk] += 1
        return known

    def _missing(self, known: Callable[[set[str]], set[str]]) -> list[Lonely]:
        """Of records with one id that no table has, one is missing; the others are duplicates."""
        if not self.lonely:
            return []
        ids = known({each.row for each in self.lonely})
        missing = []
        for each in self.lonely:
            if each.row not in ids:
                ids.add(each.row)
                missing.append(each)
        return missing


def runs(records: Iterable[Lonely]) -> list[Run]:
    """Records that follow each other in their partition as one.

    >>> runs([Lonely(0, 4, 10, "a"), Lonely(0, 5, 12, "b"), Lonely(0, 9, 20, "c")])
    [Run(partition=0, first=10, last=12, size=2), Run(partition=0, first=20, last=20, size=1)]
    """
    found: list[Run] = []
    before = (-1, -1)
    for partition, number, offset, _ in sorted(records):
        if (partition, number) == (before[0], before[1] + 1):
            found[-1] = found[-1]._replace(last=offset, size=found[-1].size + 1)
        else:
            found.append(Run(partition, offset, offset, 1))
        before = (partition, number)
    return found


def lines(rows: Iterable[str], paths: Mapping[str, str]) -> list[Lines]:
    """Rows by file and line; a chunk whose file is not known is named by its first digits.

    >>> lines(["00000000000000aa:7", "00000000000000aa:8", "b:1"], {"00000000000000aa": "a.csv"})
    [Lines(file='a.csv', first=7, last=8, size=2)]
    """
    found: list[Lines] = []
    for file, line in sorted(_lines(rows, paths)):
        if found and (found[-1].file, found[-1].last + 1) == (file, line):
            found[-1] = found[-1]._replace(last=line, size=found[-1].size + 1)
        else:
            found.append(Lines(file, line, line, 1))
    return found


def _lines(rows: Iterable[str], paths: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for row in rows:
        if parts := _ROW.fullmatch(row):
            yield paths.get(parts[1], f"chunk {parts[1]}"), int(parts[2])


def _runs_of_places(places: Mapping[int, Sequence[int]]) -> list[Run]:
    return runs(Lonely(p, at, at, "") for p, offsets in places.items() for at in offsets)
