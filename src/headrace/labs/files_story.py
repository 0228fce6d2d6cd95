"""The demo's third act: a file becomes a topic, and the topic tables, though a broker dies.

Every row of the file is accounted for afterwards, record by record: in the table of events once,
or among the dead letters once.
"""

import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.clients import Admin, Connection, Reader
from headrace.local import LocalCluster
from headrace.model import Deadline, Record
from headrace.observe import Progress
from headrace.services.generate import write_clickstream

if TYPE_CHECKING:
    from headrace.services.reconcile import Account

TOPIC = "ecommerce.files"
PARTITIONS = 5
ROWS = 50_000
BAD = 0.01
SECONDS_TO_SEE_ROWS = 120.0
TABLES = ("events", "sessions", "funnel", "revenue")


@dataclass(frozen=True)
class FileStory:
    """What the third act saw."""

    account: "Account"
    killed_broker: int
    sent_again: int
    seconds: float
    reasons: dict[str, int]
    tables: dict[str, int]  # how many rows each has
    best: list[tuple[str, int, Any]]  # brands, what they sold and for how much
    stream_seconds: float


def tell_files(cluster: LocalCluster, progress: Progress, file: Path | None = None) -> FileStory:
    """Act it out with a file, or with a generated one; returns what was seen."""
    from headrace.spark.ingest.job import ingest
    from headrace.spark.ingest.options import IngestOptions
    from headrace.spark.ingest.schema import CLICKSTREAM

    admin = Admin(cluster.bootstrap)
    admin.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        if file is None:
            file = Path(folder) / "events.csv"
            progress.step(f"writing a file of {ROWS:,} rows, one in a hundred bad")
            write_clickstream(file, ROWS, seed=7, bad=BAD)
        options = IngestOptions([str(file)], TOPIC, CLICKSTREAM)
        connection = Connection(cluster.bootstrap)
        victim = admin.topic(TOPIC).partitions[0].leader or 1
        with _killed_in_the_middle(cluster, victim, progress):
            result = ingest(options, connection, progress)
        progress.step(f"starting broker {victim} again, and the same ingest once more")
        cluster.start(victim)
        again = ingest(options, connection, progress)
        lake = Path(folder) / "lake"
        stream_seconds, account = _to_tables(lake, connection, progress)
        return FileStory(
            account=account,
            killed_broker=victim,
            sent_again=again.rows_sent + again.rows_dead,
            seconds=result.seconds,
            reasons=_reasons(_records(cluster, f"{TOPIC}.dead")),
            tables={name: _count(lake, name) for name in TABLES},
            best=_best(lake),
            stream_seconds=stream_seconds,
        )


def _to_tables(lake: Path, connection: Connection, progress: Progress) -> "tuple[float, Account]":
    from headrace.services.reconcile_sources import ReconcileOptions, reconcile
    from headrace.spark.pipelines import CLICKSTREAM
    from headrace.spark.pipelines.runner import StreamOptions, stream

    result = stream(StreamOptions(CLICKSTREAM, str(lake), topic=TOPIC), connection, progress)
    progress.step("reading everything back: does every row add up?")
    account = reconcile(ReconcileOptions(TOPIC, str(lake), full=True), connection, progress)
    return result.seconds, account


def _count(lake: Path, table: str) -> int:
    from headrace.services.delta_tables import Snapshot

    return Snapshot(lake / table).count()


def _best(lake: Path) -> list[tuple[str, int, Any]]:
    from headrace.services.delta_tables import Snapshot

    columns = "brand, sum(purchases) AS sold, sum(revenue) AS revenue"
    found = Snapshot(lake / "revenue").select(f"{columns}", "true GROUP BY brand", ["revenue DESC"])
    rows = [row for batch in found for row in batch.to_pylist()]
    return [(row["brand"], row["sold"], row["revenue"]) for row in rows[:5]]


@contextmanager
def _killed_in_the_middle(cluster: LocalCluster, victim: int, progress: Progress) -> Iterator[None]:
    """Kill a broker as soon as the first rows are on their way, committed or not."""
    over = threading.Event()

    def strike() -> None:
        for _ in Deadline(SECONDS_TO_SEE_ROWS).polls(every=0.05):
            if over.is_set() or _anything_written(cluster):
                break
        progress.step(f"killing broker {victim} while rows are sent")
        cluster.kill(victim)

    thread = threading.Thread(target=strike, name="demo-fault", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _anything_written(cluster: LocalCluster) -> bool:
    folders = (cluster.data_folder(broker.id) for broker in cluster.spec.brokers)
    logs = (path for folder in folders for path in folder.glob(f"{TOPIC}-[0-9]*/*.log"))
    return any(path.stat().st_size for path in logs)


def _records(cluster: LocalCluster, topic: str) -> list[Record]:
    settings = {"isolation.level": "read_committed"}
    with Reader(topic, connection=cluster.bootstrap, settings=settings) as reader:
        return [record for batch in reader.batches() for record in batch]


def _header(record: Record, name: str) -> str:
    return (dict(record.headers).get(name) or b"").decode()


def _reasons(dead: list[Record]) -> dict[str, int]:
    """Why rows are dead, without the values that differ from row to row."""
    kinds = (_header(record, "headrace-reason").partition(":")[0] for record in dead)
    return dict(Counter(kinds).most_common())
