"""What a topic takes. A broker that refuses one record fails the whole chunk, in every run."""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.errors import BadInput
from headrace.spark.ingest.rows import MAX_ROW_BYTES

HOUR = 3_600_000
RECORD_BYTES = 1_000  # of a record beside its key and value: its headers, and those of its batch
_LARGEST = (1 << 63) - 1


class Times(NamedTuple):
    """In milliseconds since 1970, both of them taken."""

    earliest: int
    latest: int


class Limits(NamedTuple):
    """Of a row as a record."""

    most_bytes: int = MAX_ROW_BYTES  # of value and key
    needs_key: bool = False
    times: Times | None = None  # if its time is that of the event

    @property
    def sink_options(self) -> dict[str, str]:
        """For `format("headrace")`: a batch must fit the topic too."""
        if self.most_bytes == MAX_ROW_BYTES:
            return {}
        return {"kafka.batch.size": str(self.most_bytes)}


def limits_of(
    topic: str, settings: Mapping[str, str | None], *, event_time: bool, now: int
) -> Limits:
    """What the topic's settings say.

    >>> limits_of("clicks", {"cleanup.policy": "compact"}, event_time=False, now=0)
    Limits(most_bytes=900000, needs_key=True, times=None)
    """
    most = int(settings.get("max.message.bytes") or _LARGEST) - RECORD_BYTES
    if most < 1:
        raise BadInput(
            f"topic {topic!r} takes records of {most + RECORD_BYTES} bytes only",
            hint=f"headrace topic alter {topic} -c max.message.bytes=1048588",
        )
    return Limits(
        min(MAX_ROW_BYTES, most),
        "compact" in (settings.get("cleanup.policy") or ""),
        _times(topic, settings, now) if event_time else None,
    )


def _times(topic: str, settings: Mapping[str, str | None], now: int) -> Times:
    """0 is no time for librdkafka: it would be the time of sending."""
    if settings.get("message.timestamp.type") == "LogAppendTime":
        raise BadInput(
            f"topic {topic!r} gives records its own time, so that --event-time would do nothing",
            hint=f"headrace topic alter {topic} -c message.timestamp.type=CreateTime",
        )

    def limit(name: str) -> int:
        return int(settings.get(f"message.timestamp.{name}.max.ms") or _LARGEST)

    before = limit("before")
    # A row must not become too old while it is on its way.
    earliest = now - before + min(HOUR, before // 2)
    return Times(max(1, earliest), min(_LARGEST, now + limit("after")))
