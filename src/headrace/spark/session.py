"""A Spark session with the jars of the lock, the right Java and Headrace's sink.

Spark finds its jars by path: nothing is resolved when a session starts, and nothing but what the
lock names is loaded. Without a master it runs in this process's shadow on all cores, and gives a
task that fails three more attempts, as a cluster would.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.config import Places
from headrace.config.profiles import SparkSection, find_profile_file, read_profiles
from headrace.errors import BadInput, ConfigError
from headrace.local.artifacts import Store, read_lock
from headrace.local.java import spark_java
from headrace.observe import Progress, Silent
from headrace.spark.interrupts import interrupts
from headrace.spark.jvm import ensure_jvm

if TYPE_CHECKING:
    from socketserver import BaseServer

    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*,4]"
MASTER_VARIABLE = "HEADRACE_SPARK_MASTER"
_MARK = "spark.headrace.session"
# Damaged bytes can claim a text of two gigabytes, and Avro would make room for it before it reads:
# Spark then ends for want of memory.
_AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{what}.maxLength={limit}"
    for what, limit in {"string": 64 << 20, "bytes": 64 << 20, "collectionItems": 8 << 20}.items()
)
# Nobody waits for a single row: pauses matter less than what a collector takes beside the work. A
# row leaves twenty kilobytes of waste behind it (Spark's JSON parser alone makes eight): with half
# of the memory for what is new, it is swept half as often.
_THROUGHPUT = "-XX:+UseParallelGC -XX:NewRatio=1"
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def session(
    app: str = "headrace",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    places: Places | None = None,
    progress: Progress | None = None,
) -> "SparkSession":
    """The Spark session of this process, made if there is none.

    `master` is a Spark master's address; else HEADRACE_SPARK_MASTER, else what headrace.toml says,
    else all cores of this machine. `config` holds any of Spark's own settings, which stand over
    those of headrace.toml, and these over Headrace's.
    """
    builder_class = _import_spark()
    active = builder_class.getActiveSession()
    if active is not None:
        return _checked(active)
    places = places or Places.from_environment()
    master, wishes = choose_master(master)
    jars = Store(places.cache, progress=progress).fetch(read_lock("spark"), "jars for Spark")
    os.environ["JAVA_HOME"] = str(spark_java(places.cache).home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a setting alone is not always heeded
    (progress or Silent()).step(f"starting Spark on {master}")
    wishes |= dict(config or {})
    names = {"spark.app.name": app, "spark.master": master}
    spark = _create(builder_class, names | _settings(jars, master, wishes) | wishes)
    _activate(spark)
    _register(spark)
    quiet_about_ends(spark.sparkContext._accumulatorServer)
    if not master.startswith("local"):
        _ship_package(spark)
    return spark


def _create(builder_class: "type[SparkSession]", settings: Mapping[str, str]) -> "SparkSession":
    from pyspark import SparkConf, SparkContext

    interrupts.install()
    ensure_jvm(settings)
    # The context by itself first: when it is made, PySpark takes SIGINT.
    try:
        SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    finally:
        interrupts.install_again()
    builder = builder_class.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    interrupts.cancel = partial(_cancel_all, spark)
    return spark


def _cancel_all(spark: "SparkSession") -> None:
    for query in spark.streams.active:
        query.stop()
    spark.sparkContext.cancelAllJobs()


def is_local(spark: "SparkSession") -> bool:
    """Whether Spark runs in one process on this machine: no executor can be lost."""
    return bool(spark.sparkContext._jsc.sc().isLocal())


def choose_master(given: str | None) -> tuple[str, dict[str, str]]:
    """The master that counts, and what else headrace.toml wants of Spark."""
    file = find_profile_file()
    wishes = read_profiles(file).spark if file else SparkSection()
    master = given or os.environ.get(MASTER_VARIABLE) or wishes.master or LOCAL_MASTER
    return master, wishes.settings


def _import_spark() -> "type[SparkSession]":
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(
            f"PySpark is not installed ({error})", hint="pip install 'headrace[spark]'"
        ) from error
    return SparkSession


def _checked(active: "SparkSession") -> "SparkSession":
    if active.conf.get(_MARK, None) is None:
        raise BadInput(
            "a Spark session without Headrace's jars is already running in this process",
            hint="stop it, or make it with headrace.spark.session() in the first place",
        )
    return active


def _settings(jars: list[Path], master: str, wishes: Mapping[str, str]) -> dict[str, str]:
    cores = str(os.cpu_count() or 1)
    quiet = resources.files("headrace.spark").joinpath("log4j2.properties")
    options = f"-Dlog4j2.configurationFile={quiet} {_AVRO_LIMITS}"
    if master.startswith("local") and not _collector_is_chosen(wishes):
        options += f" {_THROUGHPUT}"
    settings = {
        _MARK: "true",
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        # What a pipeline keeps for the time of a batch is not worth the time to press it.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # A stream runs the same queries in every batch. With room for 100 pieces of code, a few
        # tables are enough to have all of it made and compiled anew each time.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # For every part of an expression PySpark would tell Java which line of Python wrote it:
        # four calls instead of one, and pipelines are made of thousands.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Of each partition Spark keeps all that its last poll brought, for five minutes. Polls are
        # large here, and a hundred partitions would take most of the memory.
        "spark.kafka.consumer.fetchedData.cache.timeout": "3s",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "3s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": _AVRO_LIMITS,
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.memory": "2g",
            # With half of the memory for what is new, what Spark keeps must fit into the rest.
            "spark.memory.fraction": "0.4",
            "spark.python.daemon.module": "headrace.spark.daemon",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": cores,
            # Delta takes 50 partitions to look at a table's log, which is small here.
            "spark.databricks.delta.snapshotPartitions": cores,
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
        }
    return settings


def _collector_is_chosen(wishes: Mapping[str, str]) -> bool:
    """Java refuses to start with two collectors."""
    said = [os.environ.get(name, "") for name in _JAVA_VARIABLES]
    said.append(wishes.get("spark.driver.defaultJavaOptions", ""))
    return any(re.search(r"-XX:\+Use\w+GC", each) for each in said)


def _activate(spark: "SparkSession") -> None:
    """Spark looks for data sources in the session of the calling thread; one that was made on
    another thread is not this one's yet."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def _register(spark: "SparkSession") -> None:
    from headrace.spark.database.source import TableSource
    from headrace.spark.ingest.source import FilesSource
    from headrace.spark.sink import KafkaSink

    spark.dataSource.register(KafkaSink)
    spark.dataSource.register(FilesSource)
    spark.dataSource.register(TableSource)


def quiet_about_ends(server: "BaseServer") -> None:
    """Spark's end closes a connection that PySpark may still read from: no reason for a traceback
    on the user's terminal."""
    tell = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError):
            tell(request, address)

    server.handle_error = handle_error  # type: ignore[assignment,method-assign]


def _ship_package(spark: "SparkSession") -> None:
    """Send this package to the executors; what it depends on must be installed there."""
    package = Path(str(resources.files("headrace")))
    folder = Path(tempfile.mkdtemp(prefix="headrace-"))
    # Executors fetch it from here whenever they start: it must stay as long as this process.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "headrace.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                target.write(path, Path("headrace") / path.relative_to(package))
    spark.sparkContext.addPyFile(str(archive))
