"""Topics and tables of a lake as tables of SQL: as they are now, or as streams."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import orjson

from headrace.clients import Admin, Connection
from headrace.errors import BadInput
from headrace.model import AtTime, Earliest, Latest, TopicPartition
from headrace.spark.pipelines.definition import Derive, Pipeline, Topic
from headrace.spark.pipelines.fields import KAFKA_COLUMNS, Avro
from headrace.spark.pipelines.lake import Lake
from headrace.spark.pipelines.runner import refuse_settings
from headrace.spark.reading import committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Start = Earliest | Latest | AtTime
COLUMNS = ("key", "value", "json", "topic", "partition", "offset", "timestamp", "headers")
RECORDS_PER_BATCH = 500_000  # a long topic is shown as it is read
_EARLIEST = -2  # as Spark writes it


class LakeTables:
    """The Delta tables of a folder, wherever Spark finds it."""

    def __init__(self, spark: "SparkSession", folder: str | None) -> None:
        self._spark = spark
        self._lake = None if folder is None else Lake(spark, folder)

    @cached_property
    def names(self) -> list[str]:
        if self._lake is None:
            return []
        jvm: Any = self._spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(self._lake.folder)
        files = path.getFileSystem(self._spark._jsc.hadoopConfiguration())
        if not files.exists(path):
            raise BadInput(
                f"there is no folder {self._lake.folder}",
                hint="give the --lake that `headrace stream` wrote to",
            )
        folders = [each.getPath() for each in files.listStatus(path) if each.isDirectory()]
        log = jvm.org.apache.hadoop.fs.Path
        return sorted(str(f.getName()) for f in folders if files.exists(log(f, "_delta_log")))

    def path(self, name: str) -> str:
        assert self._lake is not None
        return self._lake.path(name)

    def read(self, name: str) -> "DataFrame":
        return self._spark.read.format("delta").load(self.path(name))

    def follow(self, name: str, start: Start) -> "DataFrame":
        """Rows that are there, and those that come; `start` may leave out what is there."""
        reader = self._spark.readStream.format("delta")
        if isinstance(start, Latest):
            reader = reader.option("startingVersion", "latest")
        elif isinstance(start, AtTime):
            raise BadInput(
                f"table {name} cannot be followed from a time",
                hint="--from earliest or latest, and a condition on a column",
            )
        return reader.load(self.path(name))


class Topics:
    """The topics of a cluster, which is asked for only when a query needs one."""

    def __init__(
        self,
        spark: "SparkSession",
        connect: Callable[[], Connection],
        start: Start,
        pipelines: Sequence[Pipeline],
    ) -> None:
        self._spark, self._connect, self._start = spark, connect, start
        self._pipelines = pipelines

    @cached_property
    def _connection(self) -> Connection:
        connection = self._connect()
        refuse_settings(connection)
        return connection

    @cached_property
    def _admin(self) -> Admin:
        return Admin(self._connection)

    @cached_property
    def names(self) -> list[str]:
        return sorted(self._admin.topic_names())

    def read(self, name: str) -> "DataFrame":
        """What was committed up to now."""
        ends = self._admin.offsets(self._places(name), Latest(), committed=True)
        starts = {
            at: offset if offset == _EARLIEST else min(offset, ends[at])
            for at, offset in self._starts(name).items()
        }
        reader = self._spark.read.format("kafka").options(**self._options(name))
        reader = reader.option("startingOffsets", _to_json(starts))
        return self._columns(name, reader.option("endingOffsets", _to_json(ends)).load())

    def follow(self, name: str) -> "DataFrame":
        """What was committed, and what will be."""
        reader = self._spark.readStream.format("kafka").options(**self._options(name))
        reader = reader.option("startingOffsets", _to_json(self._starts(name)))
        reader = reader.option("maxOffsetsPerTrigger", str(RECORDS_PER_BATCH))
        return self._columns(name, reader.load())

    def _places(self, name: str) -> list[TopicPartition]:
        return [TopicPartition(name, each.id) for each in self._admin.topic(name).partitions]

    def _starts(self, name: str) -> Mapping[TopicPartition, int]:
        places = self._places(name)
        if isinstance(self._start, Earliest):  # whatever retention removes meanwhile
            return dict.fromkeys(places, _EARLIEST)
        return self._admin.offsets(places, self._start, committed=True)

    def _options(self, name: str) -> dict[str, str]:
        own = {"subscribe": name, "groupIdPrefix": "headrace-sql"}
        return committed(self._connection) | own

    def _columns(self, name: str, records: "DataFrame") -> "DataFrame":
        known = [each for each in self._pipelines if name in topics_of(each)]
        return topic_columns(records, known[0] if known else None)


def topics_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The topics that a pipeline reads; none if it reads something else."""
    return pipeline.source.names if isinstance(pipeline.source, Topic) else ()


def refuse_avro(pipelines: Iterable[Pipeline]) -> None:
    """Refuse pipelines whose fields cannot be columns of a query."""
    for each in pipelines:
        if isinstance(each.source, Topic) and isinstance(each.source.value, Avro):
            raise BadInput(
                f"pipeline {each.name} reads Avro values, which `sql` does not",
                hint=f"leave --pipeline out, or ask the table {each.rows.name} with --lake",
            )


def topic_columns(records: "DataFrame", pipeline: Pipeline | None = None) -> "DataFrame":
    """Records as rows of a table; with a pipeline, its fields and what it derives of them too."""
    from pyspark.sql import functions as F  # noqa: N812

    if pipeline is not None and isinstance(pipeline.source, Topic):
        source = pipeline.source
        if not isinstance(source.value, Avro):
            return _typed(records, source, pipeline)
    return records.select(*_plain(F.col("key"), F.col("value"), COLUMNS[3:7], F.col("headers")))


def _plain(key: Any, value: Any, places: Sequence[str], headers: Any) -> list[Any]:
    from pyspark.sql import functions as F  # noqa: N812

    text = value.cast("string")
    with_text = F.transform(
        headers, lambda each: F.struct(each["key"], each["value"].cast("string").alias("value"))
    )
    return [
        key.cast("string").alias("key"),
        text.alias("value"),
        F.try_parse_json(text).alias("json"),
        *(F.col(name).alias(ours) for name, ours in zip(places, COLUMNS[3:7], strict=True)),
        with_text.alias("headers"),
    ]


def _typed(records: "DataFrame", source: Topic, pipeline: Pipeline) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    from headrace.spark.pipelines.decoding import RAW, REASON, read_values

    # Decoding hands the key on as it is, and forgets the headers: they go along with it.
    packed = records.withColumn("key", F.struct("key", "headers"))
    rows = read_values(packed, source.value)
    steps = list(takewhile(lambda step: isinstance(step, Derive), pipeline.steps))
    for step in steps:
        assert isinstance(step, Derive)
        rows = rows.withColumn(step.name, F.expr(step.expression))
    names = [field.column for field in source.fields]
    names += [step.name for step in steps if isinstance(step, Derive)]
    taken = {*COLUMNS, "reason"}
    return rows.select(
        *_plain(
            F.col(f"`{RAW[0]}`.key"),
            F.col(f"`{RAW[1]}`"),
            KAFKA_COLUMNS,
            F.col(f"`{RAW[0]}`.headers"),
        ),
        *(F.col(name) for name in dict.fromkeys(names) if name.lower() not in taken),
        F.col(f"`{REASON}`").alias("reason"),
    )


def _to_json(offsets: Mapping[TopicPartition, int]) -> str:
    return orjson.dumps(_by_topic(offsets.items())).decode()


def _by_topic(offsets: Iterable[tuple[TopicPartition, int]]) -> dict[str, dict[str, int]]:
    """Offsets as Spark writes them.

    >>> _by_topic([(TopicPartition("clicks", 0), 7), (TopicPartition("clicks", 1), -2)])
    {'clicks': {'0': 7, '1': -2}}
    """
    found: dict[str, dict[str, int]] = {}
    for at, offset in offsets:
        found.setdefault(at.topic, {})[str(at.partition)] = offset
    return found
