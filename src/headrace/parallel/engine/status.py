"""A consumer at one moment."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.model import TopicPartition


@dataclass(frozen=True)
class ConsumerStatus:
    """What a running consumer has done and has in hand.

    `polled` counts records that came, in so many `polls`; `handled` finished ones, `failed` those
    of them that were skipped, `late` those that finished after their partition had gone. `waiting`
    are at hand and not started; `parked` wait for their next attempt. `lag` is what the partitions
    still hold, as of the last fetch: None until something was fetched.
    """

    name: str
    group: str
    state: str
    partitions: Sequence[TopicPartition]
    paused: Sequence[TopicPartition]
    polls: int
    polled: int
    handled: int
    failed: int
    in_flight: int
    waiting: int
    parked: int
    late: int
    lag: int | None
    last_error: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "partitions": [str(partition) for partition in self.partitions],
            "paused": [str(partition) for partition in self.paused],
        }
