"""Members of a group as processes, and the judgement on what they handled."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import headrace as hr


def send_numbers(bootstrap: str, topic: str, count: int, keys: int, first: int = 0) -> None:
    """Numbers `first` to `first + count`, each with the key `number % keys`."""
    numbers = range(first, first + count)
    pairs = [(f"k{number % keys}".encode(), str(number).encode()) for number in numbers]
    with hr.Producer(bootstrap) as producer:
        producer.send_many(topic, pairs).result()


class Members:
    """Processes that share one ledger; whatever is left of them is killed at the end."""

    def __init__(self, bootstrap: str, topic: str, group: str, folder: Path) -> None:
        self.topic = topic
        self.group = group
        self.ledger = folder / "ledger.tsv"
        self._arguments = (bootstrap, topic, group, str(self.ledger))
        self._processes: list[subprocess.Popen[str]] = []
        self._folder = folder

    def start(self, **options: object) -> "subprocess.Popen[str]":
        log = (self._folder / f"member-{len(self._processes)}.log").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", "support.member", *self._arguments, json.dumps(options)],
            cwd=Path(__file__).parent.parent,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        log.close()
        self._processes.append(process)
        return process

    def lines(self) -> list["Line"]:
        if not self.ledger.exists():
            return []
        # Without a last line that is only just being written.
        whole, _, _ = self.ledger.read_text().rpartition("\n")
        return [Line.read(text) for text in whole.splitlines()]

    def finished(self) -> set[int]:
        return {line.number for line in self.lines() if line.kind == "e"}

    def have_finished(self, count: int) -> Callable[[], bool]:
        """Whether so many different numbers are handled, asked later."""
        return lambda: len(self.finished()) >= count

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("member-*.log")))


class Line(NamedTuple):
    """One line of a ledger."""

    kind: str
    member: str
    key: str
    number: int
    where: str
    at: int

    @classmethod
    def read(cls, text: str) -> "Line":
        kind, member, key, number, where, at = text.split("\t")
        return cls(kind, member, key, int(number), where, int(at))


@dataclass(frozen=True)
class Handled:
    """What a ledger shows. In order: nothing `lost`, `swapped` or `overlapping`."""

    lost: set[int]
    repeated: int
    swapped: list[tuple[str, int, int]]
    overlapping: list[tuple[str, int, int]]


def judge_handled(lines: list[Line], expected: set[int]) -> Handled:
    """Lost records, repeats, and order within each key: a repeat may only begin again at a record
    that was handled before, and go on in order from there."""
    ended = Counter(line.number for line in lines if line.kind == "e")
    return Handled(
        lost=expected - set(ended),
        repeated=sum(count - 1 for count in ended.values()),
        swapped=list(_swapped(lines)),
        overlapping=list(_overlapping(lines)),
    )


def _by_key(lines: list[Line], kind: str) -> dict[str, list[Line]]:
    by_key: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.kind == kind:
            by_key[line.key].append(line)
    return by_key


def _swapped(lines: list[Line]) -> Iterator[tuple[str, int, int]]:
    """Starts of a key that leave one out, or that go back to one never started before."""
    for key, starts in _by_key(lines, "s").items():
        started: list[int] = []
        for line in sorted(starts, key=lambda line: line.at):
            known = set(started)
            if line.number in known:
                started.append(line.number)
                continue
            if known and line.number < max(known):
                yield key, max(known), line.number
            started.append(line.number)


def _overlapping(lines: list[Line]) -> Iterator[tuple[str, int, int]]:
    """Two handlers of one key at the same time; a handler that was killed ends with its member."""
    last_of_member: dict[str, int] = {}
    for line in lines:
        last_of_member[line.member] = max(line.at, last_of_member.get(line.member, 0))
    ends = {(line.member, line.where): line.at for line in lines if line.kind == "e"}
    for key, starts in _by_key(lines, "s").items():
        spans = sorted(
            (s.at, ends.get((s.member, s.where), last_of_member[s.member]), s.number)
            for s in starts
        )
        for (_, end, one), (start, _, other) in pairwise(spans):
            if start < end:
                yield key, one, other


def interrupt(process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> int:
    """Send a signal and wait for the end; returns the exit status."""
    os.kill(process.pid, number)
    return process.wait(timeout=60)
