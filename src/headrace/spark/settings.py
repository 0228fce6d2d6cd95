"""Settings of a Spark session that hold for a while only."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Unless its batches of Arrow may have any size, Spark works out after every row how large the one
# at hand is: an eighth of its time when rows go to Kafka. For rows that are known to be few or
# small: a batch still has at most `spark.sql.execution.arrow.maxRecordsPerBatch` of them.
ROWS_UNMEASURED = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}


@contextlib.contextmanager
def set_meanwhile(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings, and leave them as the session's owner had them.

    >>> with set_meanwhile(spark, {"spark.sql.shuffle.partitions": "1"}):     # doctest: +SKIP
    ...     table.groupBy("user").count().show()
    """
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, found in before.items():
            if found is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, found)
