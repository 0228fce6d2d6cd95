"""Dead letters on their way to their topic: what they say, and that each is sent once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.clients import Connection
from headrace.errors import PieceChanged
from headrace.spark.columns import HEADER, ROW_HEADER
from headrace.spark.ingest.rows import MAX_ROW_BYTES, SHOWN_BYTES
from headrace.spark.pipelines.decoding import RAW, REASON
from headrace.spark.pipelines.fields import KAFKA_COLUMNS, ROW_ID
from headrace.spark.pipelines.lake import Commit, fingerprint
from headrace.spark.running import translate_failure

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SHOWN_OF_A_TEXT = 1_000  # characters of an id or a reason; the table has all of it


def dead_headers() -> "dict[str, Column]":
    """What a dead letter's headers say."""
    return {
        "headrace-topic": F.col("kafka_topic"),
        "headrace-partition": F.col("kafka_partition").cast("string"),
        "headrace-offset": F.col("kafka_offset").cast("string"),
        "headrace-reason": F.substring(REASON, 1, SHOWN_OF_A_TEXT),
        ROW_HEADER: F.substring(ROW_ID, 1, SHOWN_OF_A_TEXT),
        "headrace-bytes": F.when(_is_large(*raw()), F.octet_length(RAW[1])).cast("string"),
    }


def sendable(key: "Column", value: "Column") -> "list[Column]":
    """Of what is too large for the topic of dead letters, the beginning; the table has all."""
    large = _is_large(key, value)
    return [F.when(large, F.substring(c, 1, SHOWN_BYTES)).otherwise(c) for c in (key, value)]


def _is_large(key: "Column", value: "Column") -> "Column":
    return size_of(key, value) > MAX_ROW_BYTES


def raw() -> "tuple[Column, Column]":
    """A record's own key and value."""
    return F.col(RAW[0]), F.col(RAW[1])


def size_of(*parts: "Column") -> "Column":
    """Bytes of all parts together; of what is null, none."""
    return sum((F.coalesce(F.octet_length(each), F.lit(0)) for each in parts), F.lit(0))


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters' topic, and the lake whose tables they are missing in."""

    topic: str
    connection: Connection
    lake: str

    def send(self, dead: "DataFrame", commit: Commit) -> None:
        """Exactly once: one piece for each batch, its rows in the same order each time. Raises
        PieceChanged if others were sent for this batch before."""
        ordered = dead.coalesce(1).sortWithinPartitions(*KAFKA_COLUMNS[:3])
        key, value = sendable(*raw())
        records = ordered.select(
            key.alias("key"),
            value.alias("value"),
            *(text.cast("binary").alias(HEADER + name) for name, text in dead_headers().items()),
        )
        writer = records.write.format("headrace").option("topic", self.topic)
        writer = writer.option("job", self.job(commit)).option("batch", commit.version)
        try:
            writer.option("bootstrap", self.connection.bootstrap).mode("append").save()
        except Exception as failure:
            told = translate_failure(failure)
            if isinstance(told, PieceChanged):
                raise told from failure
            raise

    def job(self, commit: Commit) -> str:
        """Another lake's batches of the same topics are cut in another way: not the same job."""
        topic_ids = ",".join(commit.info["so_far"]["topic_ids"].values())
        return f"{commit.app}/{fingerprint(self.lake)}/{topic_ids}"
