"""Tables in a folder, each a Delta table, and what their commits say."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from headrace.errors import BadInput
from headrace.spark.pipelines.definition import Lookup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TXN = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}


@dataclass(frozen=True)
class Commit:
    """Who writes: a query's batch, and what the table's history says of it."""

    query: str
    batch: int
    info: Mapping[str, Any]

    @property
    def options(self) -> dict[str, str]:
        text = orjson.dumps(self.info).decode()
        return {"txnAppId": self.query, "txnVersion": str(self.batch), "userMetadata": text}


class Lake:
    """A folder of Delta tables."""

    def __init__(self, spark: "SparkSession", folder: str) -> None:
        self._spark = spark
        self.folder = folder.rstrip("/")

    def path(self, table: str) -> str:
        return f"{self.folder}/{table}"

    def has(self, table: str) -> bool:
        delta = self._spark._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]
        return bool(delta.isDeltaTable(self._spark._jsparkSession, self.path(table)))

    def read(self, table: str) -> "DataFrame":
        return self._spark.read.format("delta").load(self.path(table))

    def read_lookup(self, lookup: Lookup) -> "DataFrame":
        """A small table by key, each key once."""
        reader = self._spark.read.format(lookup.format)
        if lookup.format == "csv":
            reader = reader.option("header", "true")
        table = reader.load(lookup.path).select(lookup.on, *lookup.columns)
        return table.dropDuplicates([lookup.on])

    def has_batch(self, table: str, commit: Commit) -> bool:
        """Whether the table has this batch, or a later one, of this query."""
        if not self.has(table):
            return False
        log = self._spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
        snapshot = log.forTable(self._spark._jsparkSession, self.path(table)).update(
            *(False, self._none(), self._none())
        )
        found = snapshot.transactions().get(commit.query)
        return bool(found.isDefined() and found.get() >= commit.batch)

    def append(self, table: str, rows: "DataFrame", commit: Commit) -> None:
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        for name, value in commit.options.items():
            writer = writer.option(name, value)
        writer.save(self.path(table))

    def merge(self, table: str, rows: "DataFrame", on: str, clauses: str, commit: Commit) -> None:
        """Merge rows (called `s`) into the table (`t`)."""
        rows.createOrReplaceTempView("headrace_merged")
        spark = rows.sparkSession
        with _settings(spark, {_TXN[name]: value for name, value in commit.options.items()}):
            spark.sql(
                f"MERGE INTO delta.`{self.path(table)}` AS t USING headrace_merged AS s "
                f"ON {on} {clauses}"
            )

    def last_info(self, table: str) -> dict[str, Any] | None:
        """What the newest commit of a pipeline says, if there is one."""
        if not self.has(table):
            return None
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{self.path(table)}`")
        found = history.where("userMetadata is not null").orderBy("version", ascending=False)
        for row in found.select("userMetadata").limit(1).collect():
            try:
                return dict(orjson.loads(row[0]))
            except (orjson.JSONDecodeError, TypeError) as error:
                raise BadInput(
                    f"the last commit of {self.path(table)} is no pipeline's: {row[0][:80]}",
                    hint="give the pipeline a folder of its own with --lake",
                ) from error
        return None

    def _none(self) -> Any:
        return self._spark._jvm.scala.Option.empty()  # type: ignore[union-attr]


@contextlib.contextmanager
def _settings(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
