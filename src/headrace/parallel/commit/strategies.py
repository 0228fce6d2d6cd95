"""Offset strategies: plain values that say when to commit; the engine does it.

They differ in what a crash repeats or loses, and in what they cost. Choose by name or by object:

    offsets="gap-safe"      offsets=GapSafe(interval=0.2)
    offsets="per-record"    offsets=PerBatch(500, sync=False, on_commit=print)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headrace.errors import ConfigError, HeadraceError
from headrace.model import TopicPartition

# Called with the offsets by partition, and the error if they could not be committed.
OnCommit = Callable[[Mapping[TopicPartition, int], HeadraceError | None], None]


@dataclass(frozen=True)
class OffsetStrategy:
    """When offsets are committed. `remembers`: finished records beyond the offset are kept too."""

    name: ClassVar[str]
    guarantee: ClassVar[str]
    remembers: ClassVar[bool] = True


@dataclass(frozen=True)
class GapSafe(OffsetStrategy):
    """Every `interval` seconds, in the background, whatever is finished; the default.

    Guarantee: at least once. The committed offset never passes an unfinished record, and finished
    ones beyond it are remembered in the commit. After a crash, what finished within the last
    interval is handled again, and nothing else; after an orderly stop or rebalance, nothing.
    """

    name: ClassVar[str] = "gap-safe"
    guarantee: ClassVar[str] = "at least once"
    interval: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("GapSafe", "interval", self.interval)


@dataclass(frozen=True)
class Auto(OffsetStrategy):
    """Every `interval` seconds whatever was handed out, finished or not: what most clients do.

    Guarantee: none. A crash loses the records that were handed out and not finished; those that
    were finished and not yet committed are handled again. A failed record that is skipped, or
    stops the consumer, may be committed already.
    """

    name: ClassVar[str] = "auto"
    guarantee: ClassVar[str] = "none"
    remembers: ClassVar[bool] = False
    interval: float = 5.0

    def __post_init__(self) -> None:
        _check_positive("Auto", "interval", self.interval)


@dataclass(frozen=True)
class PerRecord(OffsetStrategy):
    """Each record, and the next of its shard starts when the broker has confirmed the commit.

    Guarantee: at least once; a crash repeats at most the records that were running or just
    finished, one for each worker. Records that finish at the same time share a commit. Costs a
    round trip to the broker for each record of a key.
    """

    name: ClassVar[str] = "per-record"
    guarantee: ClassVar[str] = "at least once"


@dataclass(frozen=True)
class PerBatch(OffsetStrategy):
    """When all of `size` polled records are finished; the next batch starts after that.

    Guarantee: at least once; a crash repeats at most a batch. With `sync` the next batch waits for
    the broker's confirmation; without, it starts at once (a crash may repeat two batches), and
    `on_commit` hears of the outcome.
    """

    name: ClassVar[str] = "per-batch"
    guarantee: ClassVar[str] = "at least once"
    size: int = 500
    sync: bool = True
    on_commit: OnCommit | None = None

    def __post_init__(self) -> None:
        _check_positive("PerBatch", "size", self.size)
        if self.sync and self.on_commit is not None:
            raise ConfigError(
                "PerBatch(sync=True) and on_commit contradict each other: nobody need be told of "
                "what was waited for",
                hint="give sync=False, or leave on_commit out",
            )


_BY_NAME: dict[str, Callable[[], OffsetStrategy]] = {
    kind.name: kind for kind in (GapSafe, Auto, PerRecord, PerBatch)
}


def strategy_named(given: OffsetStrategy | str) -> OffsetStrategy:
    """A strategy as given, or the one of this name with its defaults.

    >>> strategy_named("gap-safe")
    GapSafe(interval=1.0)
    """
    if isinstance(given, OffsetStrategy):
        return given
    if given not in _BY_NAME:
        raise ConfigError(
            f"there is no offset strategy {given!r}", hint=f"use {', '.join(_BY_NAME)}"
        )
    return _BY_NAME[given]()


def _check_positive(kind: str, name: str, value: float) -> None:
    if value <= 0:
        raise ConfigError(f"{kind}({name}={value}) must be positive", hint=f"give {name} above 0")
