"""Rounds of a benchmark: in turns, and compared within each."""

from collections.abc import Iterator, Sequence
from statistics import median

from headrace.observe import Progress


def in_turns(systems: Sequence[str], rounds: int, progress: Progress) -> Iterator[str]:
    """Each system once a round, to and fro: what one leaves behind, the next one pays for."""
    for number in range(rounds):
        progress.step(f"round {number + 1} of {rounds}")
        yield from systems[:: -1 if number % 2 else 1]


def median_ratio(one: Sequence[float], other: Sequence[float], digits: int = 2) -> float:
    """The ratio within a round, of the median round.

    >>> median_ratio([2.0, 9.0, 3.0], [1.0, 3.0, 3.0])
    2.0
    """
    return round(median(a / b for a, b in zip(one, other, strict=True)), digits)
