"""What is kept in memory for the time of a batch: several tables are written from it, and Kafka is
read once.

Spark's own cache turns rows into columns and back, which costs more than it saves where every pass
takes most of a row. On one machine rows are kept as they are. That cuts them off from where they
came from, and so it is not done on a cluster: executors are lost there, and what they had must be
made again.
"""

from typing import TYPE_CHECKING, Any

from headrace.spark.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Kept:
    """Tables that stay until they are released; what does not fit is on disk."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def keep(self, table: "DataFrame") -> "DataFrame":
        """The same rows, made when they are needed first and then no more."""
        if not is_local(table.sparkSession):
            self._held.append(table.persist()._jdf)
            return table
        rows = table.localCheckpoint(eager=False)
        self._held.append(rows._jdf.queryExecution().analyzed().rdd())
        return rows

    def release(self) -> None:
        while self._held:
            self._held.pop().unpersist(False)
