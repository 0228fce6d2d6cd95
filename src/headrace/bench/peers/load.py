"""What a peer is asked to do, and what it measured."""

import json
import uuid
from dataclasses import dataclass
from typing import Any, Literal

from headrace.errors import BadInput, OperationFailed

Order = Literal["key", "partition", "none"]


@dataclass(frozen=True)
class Load:
    """Handle the first `records` records of a topic; each takes `work_ms` milliseconds of sleep."""

    bootstrap: str
    topic: str
    records: int
    work_ms: float
    concurrency: int
    order: Order = "key"

    def __post_init__(self) -> None:
        if self.records < 1 or self.concurrency < 1 or self.work_ms < 0:
            raise BadInput(
                f"no such load: {self.records} records, {self.work_ms} ms of work, "
                f"{self.concurrency} at once",
                hint="give at least one record, one at once, and no less than 0 ms",
            )

    def arguments(self, *flags: bool) -> list[str]:
        """The command line of both programs, with a group that nobody had before."""
        return [
            self.bootstrap,
            self.topic,
            f"headrace-bench-{uuid.uuid4()}",
            str(self.records),
            str(self.work_ms),
            str(self.concurrency),
            self.order,
            *("yes" if flag else "no" for flag in flags),
        ]


@dataclass(frozen=True)
class PeerResult:
    """Seconds from the first record's start to the last one's end, by the peer's own clock.

    `handled` counts each record once; it is more than was asked for if the topic had more.
    """

    peer: str
    seconds: float
    handled: int
    duplicates: int


def parse_result(peer: str, output: str, load: Load) -> PeerResult:
    """The result in the last line that the program printed."""
    lines = output.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    result = _read(peer, last)
    if result is None:
        raise OperationFailed(
            f"{peer} printed no result, but {last[:200]!r}",
            hint="run it again; if it stays so, its version does not fit our program",
            peer=peer,
        )
    if result.handled < load.records or result.duplicates:
        raise OperationFailed(
            f"{peer} handled {result.handled:,} of {load.records:,} records, "
            f"{result.duplicates:,} of them again: this time does not count",
            hint="run it again while nobody changes the topic or stops brokers",
            peer=peer,
            handled=result.handled,
            duplicates=result.duplicates,
        )
    return result


def _read(peer: str, line: str) -> PeerResult | None:
    try:
        fields: dict[str, Any] = json.loads(line)
        result = PeerResult(
            peer, float(fields["seconds"]), int(fields["handled"]), int(fields["duplicates"])
        )
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    return result if 0 < result.seconds < float("inf") else None
