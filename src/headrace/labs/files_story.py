"""The demo's third act: a file becomes a topic, exactly once, though a broker dies meanwhile.

Every row of the file is accounted for afterwards by its id, which names the file's content and
the line: in the topic once, or among the dead letters once.
"""

import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.clients import Admin, Connection, Reader
from headrace.local import LocalCluster
from headrace.model import Deadline, Record
from headrace.observe import Progress
from headrace.services.generate import write_clickstream

TOPIC = "ecommerce.files"
PARTITIONS = 5
ROWS = 50_000
BAD = 0.01
SECONDS_TO_SEE_ROWS = 120.0


@dataclass(frozen=True)
class FileAccount:
    """Every row of the file: in the topic, or dead; none twice, none missing."""

    file_rows: int
    kafka_rows: int
    dead_rows: int
    duplicates: int
    missing: int
    balanced: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class FileStory:
    """What the second act saw."""

    account: FileAccount
    killed_broker: int
    sent_again: int
    seconds: float
    reasons: dict[str, int]


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
            file_rows = ROWS
        else:
            file_rows = sum(1 for line in file.read_bytes().splitlines() if line) - 1
        options = IngestOptions([str(file)], TOPIC, CLICKSTREAM)
        connection = Connection(cluster.bootstrap)
        victim = admin.topic(TOPIC).partitions[0].leader or 1
        with _killed_in_the_middle(cluster, victim, progress):
            result = ingest(options, connection, progress)
        progress.step(f"starting broker {victim} again, and the same ingest once more")
        cluster.start(victim)
        again = ingest(options, connection, progress)
    progress.step("reading everything back")
    rows, dead = _records(cluster, TOPIC), _records(cluster, f"{TOPIC}.dead")
    return FileStory(
        account=account_for(file_rows, rows, dead),
        killed_broker=victim,
        sent_again=again.rows_sent + again.rows_dead,
        seconds=result.seconds,
        reasons=_reasons(dead),
    )


def account_for(file_rows: int, rows: list[Record], dead: list[Record]) -> FileAccount:
    """Balanced if each row of the file stands in one of the topics, once."""
    ids = Counter(_header(record, "headrace-row") for record in (*rows, *dead))
    duplicates = ids.total() - len(ids)
    missing = file_rows - len(ids)
    balanced = len(rows) + len(dead) == file_rows and not duplicates and not missing
    return FileAccount(file_rows, len(rows), len(dead), duplicates, missing, balanced)


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
