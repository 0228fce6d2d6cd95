"""How Spark reads topics here: what was committed, with its headers, and without waiting.

Between two polls Spark's source asks the broker where the partition begins and ends. That question
stands in line behind a fetch that the consumer has sent ahead, and at a partition's end the broker
holds such a fetch back until something comes, half a second by default: every task of every batch
would lose it. The ranges of a batch are known to be there, so nothing needs to be waited for; and
with large polls there are few questions.

A task takes a partition, and with five of them two cores are idle and busy in turns. `in_pieces`
gives every core several tasks of one size. It is not for forwards: a piece of theirs is a
partition, and one task writes it.
"""

from typing import TYPE_CHECKING

from headrace.spark.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.clients import Connection

_KNOWN_RANGES = {"kafka.fetch.max.wait.ms": "10", "kafka.max.poll.records": "10000"}
_TASKS_PER_CORE = 4
_LEAST_RECORDS = 20_000  # fewer are not worth a task of their own
_RECORDS_ON_A_CLUSTER = 50_000


def committed(connection: "Connection", *, known_ranges: bool = True) -> dict[str, str]:
    """Options of `format("kafka")`. Real-time mode alone reads on without knowing an end."""
    options = {
        "kafka.bootstrap.servers": connection.bootstrap,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    return options | (_KNOWN_RANGES if known_ranges else {})


def in_pieces(spark: "SparkSession", records: int) -> dict[str, str]:
    """More options, for about so many records at a time: no task has to wait for a long one. How
    many cores a cluster has is not known before its executors are there."""
    context = spark.sparkContext
    wanted = _RECORDS_ON_A_CLUSTER
    if is_local(spark):
        wanted = max(_LEAST_RECORDS, records // (_TASKS_PER_CORE * context.defaultParallelism))
    return {"maxRecordsPerPartition": str(wanted)}
