"""What one pass over a decoded batch finds out."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.accounts import in_utc
from headrace.spark.pipelines.decoding import REASON, STRANGE, unmet
from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.pipelines.deriving import Span
from headrace.spark.pipelines.fields import KAFKA_COLUMNS
from headrace.spark.pipelines.values import bounded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FUTURE = "interval 1 day"


@dataclass(frozen=True)
class Facts:
    """What is in a batch. `verdicts` is a digest of which records are bad, and why."""

    rows: int
    dead: int
    verdicts: int
    oldest: datetime | None
    newest: datetime | None
    trusted: datetime | None  # the newest that is not from the future
    written: datetime | None  # when the newest came to Kafka
    unmet: dict[str, int]
    strange: int = 0  # that were not read for want of their schemas

    @property
    def span(self) -> Span | None:
        """Full hours around the oldest and the newest.

        Spark writes a time that a query names into its code. Whether a table has rows of the same
        time is asked for each batch, and with the batch's own times Spark would make and compile
        that code anew for each.
        """
        if self.oldest is None or self.newest is None:
            return None
        return _hour(self.oldest), _hour(self.newest) + timedelta(hours=1)


def facts_of(rows: "DataFrame", pipeline: Pipeline) -> Facts:
    bad = F.col(REASON).isNotNull()
    moment = F.lit(None).cast("timestamp")
    if pipeline.time is not None:
        moment = F.when(~bad, F.col(pipeline.time).cast("timestamp"))
    flags = {
        expectation.name: F.count_if(F.col(f"`{unmet(number)}`"))
        for number, expectation in enumerate(pipeline.expectations)
        if expectation.action != "drop"
    }
    # A clock that is wrong must not make all that follows late.
    possible = F.when(moment <= F.col("kafka_time") + F.expr(FUTURE), moment)
    verdict = F.when(bad, F.xxhash64(*KAFKA_COLUMNS[:3], REASON))
    strange = F.count(STRANGE) if STRANGE in rows.columns else F.lit(0)
    digest = F.coalesce(F.bit_xor(verdict), F.lit(0))
    last_written = F.max(bounded("timestamp", F.col("kafka_time")))
    found = rows.agg(
        *(F.count("*"), F.count(REASON), digest, strange),
        *(F.min(moment), F.max(moment), F.max(possible), last_written),
        *flags.values(),
    ).collect()[0]
    oldest, newest, trusted, written = map(in_utc, found[4:8])
    return Facts(
        *(found[0], found[1], found[2], oldest, newest, trusted, written),
        unmet={name: count for name, count in zip(flags, found[8:], strict=True) if count},
        strange=found[3],
    )


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
