"""Tables in a folder, each a Delta table, and what their commits say."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

from headrace.errors import BadInput
from headrace.spark.pipelines.definition import Lookup
from headrace.spark.settings import set_meanwhile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECENT_COMMITS = 20
MERGE_ATTEMPTS = 5
_TXN = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}


@dataclass(frozen=True)
class Commit:
    """Who writes, and what the table's history says of it.

    Delta takes a version of an app once: a second driver at the same batch changes nothing.
    """

    app: str
    version: int
    info: Mapping[str, Any]

    @property
    def options(self) -> dict[str, str]:
        text = orjson.dumps(self.info).decode()
        return {"txnAppId": self.app, "txnVersion": str(self.version), "userMetadata": text}

    def differs(self, info: Mapping[str, Any]) -> bool:
        """Whether an earlier attempt, of which this is the info, has come to other verdicts. One
        that told none is believed."""
        return bool(info.get("verdict", self.info["verdict"]) != self.info["verdict"])

    def of(self, definition: object) -> "Commit":
        """The same for one table: its history remembers how it was defined."""
        return replace(self, info={**self.info, "definition": fingerprint(definition)})


def fingerprint(definition: object) -> str:
    """Definitions are data: equal ones have equal fingerprints."""
    return hashlib.sha256(repr(definition).encode()).hexdigest()[:16]


class Lake:
    """A folder of Delta tables."""

    def __init__(self, spark: "SparkSession", folder: str) -> None:
        self._spark = spark
        # Delta takes a path in SQL for one only if it is absolute.
        self.folder = folder.rstrip("/") if "://" in folder else str(Path(folder).absolute())
        if "`" in self.folder:
            raise BadInput(f"the folder is named {folder!r}", hint="leave the ` out")

    def path(self, table: str) -> str:
        return f"{self.folder}/{table}"

    def has(self, table: str) -> bool:
        delta = self._spark._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]
        return bool(delta.isDeltaTable(self._spark._jsparkSession, self.path(table)))

    def read(self, table: str) -> DataFrame:
        return self._spark.read.format("delta").load(self.path(table))

    def read_lookup(self, lookup: Lookup) -> DataFrame:
        """A small table as it is now, whatever becomes of its files.

        Spark's cache would not do: it takes a second reading of the same path for the first one,
        so a table could neither be read anew nor forgotten alone.
        """
        reader = self._spark.read.format(lookup.format)
        if lookup.format == "csv":
            reader = reader.option("header", "true")
        table = reader.load(lookup.path).select(lookup.on, *lookup.columns)
        java: Any = self._spark._jsparkSession
        rows = java.createDataFrame(table._jdf.collectAsList(), table._jdf.schema())
        return DataFrame(rows, self._spark)

    def known_bytes(self, table: str) -> int | None:
        """What the files of a table's newest version have, as this session's last write noted it.

        Delta could work it out too, in seconds. What it has noted takes a millisecond.
        """
        logs = self._spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
        try:
            log = logs.forTable(self._spark._jsparkSession, self.path(table))
            noted = log.unsafeVolatileSnapshot().checksumOpt()
            return int(noted.get().tableSizeBytes()) if noted.isDefined() else None
        except Py4JJavaError:  # a figure for those who watch is no reason to stop
            return None

    def append(self, table: str, rows: DataFrame, commit: Commit) -> None:
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        for name, value in commit.options.items():
            writer = writer.option(name, value)
        writer.save(self.path(table))

    def overwrite(self, table: str, rows: DataFrame, commit: Commit) -> None:
        """A table made anew, whatever it was."""
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.option("userMetadata", commit.options["userMetadata"]).save(self.path(table))

    def delete(self, table: str, condition: str, commit: Commit) -> None:
        said = {_TXN["userMetadata"]: commit.options["userMetadata"]}
        with set_meanwhile(self._spark, said):
            self._spark.sql(f"DELETE FROM delta.`{self.path(table)}` WHERE {condition}")

    def merge(self, table: str, rows: DataFrame, on: str, clauses: str, commit: Commit) -> None:
        """Merge rows (called `s`) into the table (`t`)."""
        rows.createOrReplaceTempView("headrace_merged")
        spark = rows.sparkSession
        statement = (
            f"MERGE INTO delta.`{self.path(table)}` AS t USING headrace_merged AS s "
            f"ON {on} {clauses}"
        )
        with set_meanwhile(spark, {_TXN[name]: value for name, value in commit.options.items()}):
            for attempt in range(1, MERGE_ATTEMPTS + 1):
                try:
                    spark.sql(statement)
                    return
                except Exception as error:
                    # Whoever compacts the files meanwhile changes no row: once more, and nothing
                    # of the first attempt is there. A batch that is done already changes nothing.
                    overtaken = "io.delta.exceptions.Concurrent" in str(error)
                    if not overtaken or attempt == MERGE_ATTEMPTS:
                        raise

    def last_info(self, table: str, pipeline: str | None = None) -> dict[str, Any] | None:
        """What the newest commit of a pipeline says, if there is one; of a certain pipeline's."""
        if not self.has(table):
            return None
        for limit in (f" LIMIT {RECENT_COMMITS}", ""):  # all of a long history takes its time
            history = self._spark.sql(f"DESCRIBE HISTORY delta.`{self.path(table)}`{limit}")
            found = history.where("userMetadata is not null").orderBy("version", ascending=False)
            for row in found.select("userMetadata").collect():
                info = _read_info(row[0])
                if info is not None and pipeline in (None, info["pipeline"]):
                    return info
        return None


def _read_info(text: str) -> dict[str, Any] | None:
    try:
        info = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return info if isinstance(info, dict) and {"pipeline", "so_far"} <= set(info) else None
