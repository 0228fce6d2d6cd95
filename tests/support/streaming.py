"""What Spark says of its streaming queries."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.spark.pipelines.querying import heard_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Read:
    """How many records queries took from their sources; one that was read twice counts twice."""

    records: int = 0


@contextlib.contextmanager
def reading(spark: "SparkSession") -> Iterator[Read]:
    """Count what is read within the block."""
    found = Read()

    class Listener(StreamingQueryListener):
        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            found.records += event.progress.numInputRows

        def ignore(self, _event: Any) -> None:
            pass

        onQueryStarted = onQueryTerminated = onQueryIdle = ignore  # noqa: N815

    with heard_by(spark, Listener()):
        yield found


@contextlib.contextmanager
def dying_threads(spark: "SparkSession") -> Iterator[list[str]]:
    """What Java's threads died of within the block; else it would only be printed."""
    found: list[str] = []

    class Handler:
        def uncaughtException(self, _thread: Any, error: Any) -> None:  # noqa: N802
            found.append(str(error.toString()))

        class Java:
            implements = ("java.lang.Thread$UncaughtExceptionHandler",)

    thread = spark._jvm.java.lang.Thread  # type: ignore[union-attr]
    before = thread.getDefaultUncaughtExceptionHandler()
    thread.setDefaultUncaughtExceptionHandler(Handler())
    try:
        yield found
    finally:
        thread.setDefaultUncaughtExceptionHandler(before)
