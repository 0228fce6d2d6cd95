"""How Spark reads topics here: what was committed, with its headers, and without waiting.

Between two polls Spark's source asks the broker where the partition begins and ends. That question
stands in line behind a fetch that the consumer has sent ahead, and at a partition's end the broker
holds such a fetch back until something comes, half a second by default: every task of every batch
would lose it. The ranges of a batch are known to be there, so nothing needs to be waited for; and
with large polls there are few questions.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.clients import Connection

_KNOWN_RANGES = {"kafka.fetch.max.wait.ms": "10", "kafka.max.poll.records": "10000"}


def committed(connection: "Connection", *, known_ranges: bool = True) -> dict[str, str]:
    """Options of `format("kafka")`. Real-time mode alone reads on without knowing an end."""
    options = {
        "kafka.bootstrap.servers": connection.bootstrap,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    return options | (_KNOWN_RANGES if known_ranges else {})
