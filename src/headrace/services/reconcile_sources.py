"""Gathers what `reconcile` judges: the ledger, the topic, and the tables of a pipeline."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headrace.clients import Admin, Connection, Reader
from headrace.errors import BadInput
from headrace.model import AtOffset, Earliest, Latest, Record, TopicPartition
from headrace.observe import Progress, Silent
from headrace.services.delta_tables import Snapshot, has_table, snapshots
from headrace.services.pipelines import find_pipeline
from headrace.services.reconcile import (
    Account,
    Files,
    Partition,
    PassedOver,
    Source,
    Table,
    Topic,
    gaps,
    judge,
)
from headrace.services.reconcile_chunks import ID_DIGITS, chunks_of_files
from headrace.services.reconcile_places import Seen, Walk
from headrace.spark.columns import ROW_HEADER
from headrace.spark.ingest.chunks import Extent
from headrace.spark.ledger import LEDGER_TOPIC, Entry, ingest_job
from headrace.spark.pipelines.accounts import Standing
from headrace.spark.pipelines.checkpoints import Ranges
from headrace.spark.pipelines.definition import DEAD_LETTERS
from headrace.spark.pipelines.fields import ROW_ID

COMMITTED = {"isolation.level": "read_committed"}
MOST_COMMITS = 1000  # that are looked through for gaps, unless all are wanted
_PLACE = ("kafka_partition", "kafka_offset")

Ledger = dict[tuple[str, str], Entry]  # by job and piece


@dataclass(frozen=True)
class ReconcileOptions:
    """What is compared with what; `full` compares record by record. A table that is made of several
    topics is compared with all of them, whichever of them is named. The table of rows need only be
    named where another one looks like it."""

    topic: str
    lake: str
    pipeline: str | None = None
    full: bool = False
    table: str | None = None


def reconcile(
    options: ReconcileOptions, connection: Connection, progress: Progress | None = None
) -> Account:
    """Whether every row of a topic is accounted for. Reads only, and leaves no trace."""
    return _Reconcile(options, connection, progress or Silent()).run()


class _Reconcile:
    """One run."""

    def __init__(
        self, options: ReconcileOptions, connection: Connection, progress: Progress
    ) -> None:
        self._options, self._connection, self._progress = options, connection, progress
        self._admin = Admin(connection)

    def run(self) -> Account:
        self._admin.topic(self._options.topic)
        # The tables first, then the ledger, then the topic: what comes meanwhile is not yet read.
        found = find_tables(self._options)
        for name in found.topics:
            refuse_other_topic(self._admin, name, found.standing)
        ledger = self._ledger()
        batches = self._batches(found.rows)
        sources = [self._source(name, found, ledger, batches) for name in found.topics]
        table = Table(
            found.rows.name, found.rows.count(), found.dead_count(), found.standing.counts
        )
        return judge(table, *sources)

    def _batches(self, rows: Snapshot) -> list[Ranges]:
        """What each batch has read, the oldest first."""
        history = rows.infos(None if self._options.full else MOST_COMMITS)
        # A commit that mends a table is no batch, and has no ranges of its own.
        return [info["ranges"] for info in reversed(history) if "ranges" in info]

    def _source(
        self, name: str, found: "Tables", ledger: Ledger, batches: Sequence[Ranges]
    ) -> Source:
        topic = self._topic(name, found, ledger, batches)
        files = self._files(name, ledger)
        seen = self._compare(found, topic, files) if self._options.full else None
        return Source(topic, files, seen)

    # --- a topic ---

    def _topic(
        self, name: str, found: "Tables", ledger: Ledger, batches: Sequence[Ranges]
    ) -> Topic:
        offsets = self._offsets(name, found.standing.ranges.get(name, {}))
        partitions = [self._partition(name, *each) for each in offsets]
        passed = self._passed_over(name, partitions, batches)
        return Topic(name, partitions, passed, _other_jobs(ledger, name))

    def _passed_over(
        self, name: str, partitions: Sequence[Partition], batches: Sequence[Ranges]
    ) -> list[PassedOver]:
        """Before the first batch, and between two."""
        own = [each.get(name, {}) for each in batches]
        earliest = {partition.number: partition.earliest for partition in partitions}
        before = [(p.number, p.earliest, p.begin - 1) for p in partitions if p.earliest < p.begin]
        found = []
        for number, first, last in [*before, *gaps(own)]:
            kept = max(first, earliest.get(number, 0))
            records = self._count(name, number, kept, last) if kept <= last else None
            if records != 0:  # markers of transactions only
                found.append(PassedOver(number, first, last, records))
        return found

    def _offsets(
        self, name: str, ranges: Mapping[str, tuple[int, int]]
    ) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
        topic = self._admin.topic(name)
        places = [TopicPartition(topic.name, partition.id) for partition in topic.partitions]
        earliest = self._admin.offsets(places, Earliest())
        latest = self._admin.offsets(places, Latest())
        for at in places:
            read = ranges.get(str(at.partition), (0, 0))
            yield at.partition, earliest[at], latest[at], read

    def _partition(
        self, name: str, number: int, earliest: int, latest: int, read: tuple[int, int]
    ) -> Partition:
        begin, end = read
        unread = self._count(name, number, max(end, earliest), latest - 1)
        return Partition(number, earliest, latest, begin, end, unread)

    def _count(self, topic: str, partition: int, first: int, last: int) -> int:
        """Records that readers see from one offset to another: some offsets have none."""
        if first > last:
            return 0
        count = 0
        with self._reader(topic, partition=partition, start=AtOffset(first)) as reader:
            for batch in reader.batches(10_000):
                count += sum(first <= record.offset <= last for record in batch)
                if batch[-1].offset >= last:
                    break
        return count

    def _reader(self, topic: str, **options: Any) -> Reader:
        return Reader(topic, connection=self._connection, settings=dict(COMMITTED), **options)

    # --- the files ---

    def _ledger(self) -> Ledger:
        entries: Ledger = {}
        if not self._admin.has_topic(LEDGER_TOPIC):
            return entries
        with self._reader(LEDGER_TOPIC) as reader:
            for batch in reader.batches():
                for record in batch:
                    job, piece = orjson.loads(record.key or b"[null,null]")
                    entries.pop((job, piece), None)
                    if record.value is not None:
                        entries[job, piece] = Entry.from_bytes(record.value)
        return entries

    def _files(self, topic: str, ledger: Ledger) -> Files | None:
        job = ingest_job(topic, self._admin.topic_id(topic))
        entries = {piece: entry for (of, piece), entry in ledger.items() if of == job}
        if not entries:
            return None
        dead_topic = f"{topic}.dead"
        vague = {piece[:ID_DIGITS] for piece, entry in entries.items() if _is_vague(entry)}
        letters = self._letters(dead_topic, vague) if vague else {}
        return files_of(entries, topic, dead_topic, letters)

    def _letters(self, topic: str, chunks: set[str]) -> dict[str, int]:
        """Dead letters of these chunks: how many lines of the file each is, by row id."""
        found: dict[str, int] = {}
        if not self._admin.has_topic(topic):
            return found
        with self._reader(topic) as reader:
            for batch in reader.batches():
                for record in batch:
                    if (row := row_id_of(record)).partition(":")[0] in chunks:
                        found[row] = _lines_of(record.value or b"")
        return found

    # --- record by record ---

    def _compare(self, found: "Tables", topic: Topic, files: Files | None) -> Seen:
        walk = Walk(
            found.places(topic.name),
            {partition.number: partition.earliest for partition in topic.partitions},
            {partition.number: partition.end for partition in topic.partitions},
            None if files is None else files.chunks,
        )
        total = sum(each.latest - each.earliest for each in topic.partitions)
        self._progress.begin(f"comparing {topic.name} with {found.rows.name}", total, "records")
        try:
            with self._reader(topic.name) as reader:
                for batch in reader.batches(10_000):
                    for record in batch:
                        walk.take(record.partition, record.offset, row_id_of(record))
                    self._progress.advance(len(batch))
        finally:
            self._progress.end()
        return walk.end(found.known_rows, {} if files is None else files.paths)


# --- the tables ---


def refuse_other_topic(admin: Admin, topic: str, standing: Standing) -> None:
    """Offsets mean nothing in a topic that was made again under its name."""
    if admin.topic_id(topic) != standing.topic_ids.get(topic):
        raise BadInput(
            f"topic {topic} was deleted and made again since the table has read it: there is "
            "nothing to compare",
            hint="give the --lake of a pipeline that has read the new one",
        )


@dataclass(frozen=True)
class Tables:
    """A pipeline's table of rows and its dead letters, as of one moment."""

    pipeline: str
    rows: Snapshot
    dead: Snapshot | None
    standing: Standing

    @property
    def topics(self) -> tuple[str, ...]:
        return _topics(self.standing)

    def dead_count(self) -> int:
        if self.dead is None:
            return 0
        return sum(self.dead.count(self._own_dead(topic)) for topic in self.topics)

    def places(self, topic: str) -> dict[int, Sequence[int]]:
        """Offsets of all rows and dead letters of a topic, in order, by partition."""
        found: dict[int, array[int]] = defaultdict(lambda: array("q"))
        _add_places(found, self.rows, f"kafka_topic = {_quoted(topic)}")
        if self.dead is None:
            return dict(found)
        letters: dict[int, array[int]] = defaultdict(lambda: array("q"))
        _add_places(letters, self.dead, self._own_dead(topic))
        for partition, offsets in letters.items():
            found[partition] = array("q", sorted([*found[partition], *offsets]))
        return dict(found)

    def known_rows(self, wanted: set[str]) -> set[str]:
        """Those of these ids that the table has."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found: set[str] = set()
        values = pa.array(sorted(wanted))
        for batch in self.rows.select(ROW_ID):
            column = batch.column(0).cast(pa.string())
            found.update(column.filter(pc.is_in(column, value_set=values)).to_pylist())
        return found

    def _own_dead(self, topic: str) -> str:
        """Dead letters of a batch that is under way are written before its rows: not they."""
        read = [
            f"(kafka_partition = {int(partition)} AND kafka_offset < {end})"
            for partition, (_, end) in self.standing.ranges.get(topic, {}).items()
        ]
        own = f"pipeline = {_quoted(self.pipeline)} AND kafka_topic = {_quoted(topic)}"
        return f"{own} AND ({' OR '.join(read) or 'false'})"


def _topics(standing: Standing) -> tuple[str, ...]:
    """Those that were read, and those that had nothing yet; a commit of old may lack their ids, and
    is refused for it."""
    return tuple(dict.fromkeys([*standing.topic_ids, *standing.ranges]))


def find_tables(options: ReconcileOptions) -> Tables:
    """The table of rows that a pipeline made of the topic. Without a pipeline's name there must be
    one only in the lake."""
    wanted, table = options.pipeline, options.table
    if wanted is not None and ":" in wanted:
        pipeline = find_pipeline(wanted)
        wanted, table = pipeline.name, pipeline.rows.name
    found = [
        snapshot
        for snapshot in snapshots(options.lake)
        if snapshot.name != DEAD_LETTERS and table in (None, snapshot.name) and _has_rows(snapshot)
    ]
    infos = [(snapshot, info) for snapshot in found if (info := _last_info(snapshot)) is not None]
    of_topic = [
        (snapshot, info)
        for snapshot, info in infos
        if options.topic in _topics(Standing.from_json(info["so_far"]))
        and wanted in (None, info["pipeline"])
        and snapshot.name not in {f"{name}_late" for name in info["so_far"]["counts"]["late"]}
    ]
    snapshot, info = _the_one(of_topic, options)
    standing = Standing.from_json(info["so_far"])
    # After the rows, whose batches write them first: none that the rows know of is lacking.
    letters = Path(options.lake) / DEAD_LETTERS
    dead = Snapshot(letters) if has_table(letters) else None
    return Tables(info["pipeline"], snapshot, dead, standing)


def _has_rows(snapshot: Snapshot) -> bool:
    """Whether it may be a table of rows: the derived ones have no ids."""
    return {ROW_ID, *_PLACE} <= set(snapshot.columns)


def _last_info(snapshot: Snapshot) -> dict[str, Any] | None:
    """Most often it is in one of the last commits; compacting makes others."""
    found = snapshot.infos(20) or snapshot.infos()
    return found[0] if found else None


def _the_one(
    found: Sequence[tuple[Snapshot, dict[str, Any]]], options: ReconcileOptions
) -> tuple[Snapshot, dict[str, Any]]:
    of = f" by pipeline {options.pipeline}" if options.pipeline else ""
    if not found:
        raise BadInput(
            f"{options.lake} has no table that was made of topic {options.topic}{of}",
            hint=f"make it: headrace stream PIPELINE --topic {options.topic} "
            f"--lake {options.lake} --once",
        )
    if len(found) > 1:
        names = ", ".join(f"{snapshot.name} (by {info['pipeline']})" for snapshot, info in found)
        raise BadInput(
            f"{options.lake} has several tables that were made of topic {options.topic}: {names}",
            hint="name one with --pipeline NAME, or MODULE:PIPELINE",
        )
    return found[0]


def _add_places(found: dict[int, "array[int]"], table: Snapshot, where: str) -> None:
    placed = " AND ".join(f"{column} IS NOT NULL" for column in _PLACE)
    for batch in table.select(", ".join(_PLACE), f"{where} AND {placed}", _PLACE):
        partitions, offsets = (batch.column(index).to_numpy() for index in (0, 1))
        for partition in sorted(set(partitions.tolist())):
            found[partition].extend(offsets[partitions == partition].tolist())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- the ledger ---


def files_of(
    entries: Mapping[str, Entry], topic: str, dead_topic: str, letters: Mapping[str, int]
) -> Files:
    """What the entries of ingest's job say.

    An entry of rows that were sent at least once counts lines, and takes all of them for sent. So
    `letters` are the dead letters of such chunks, with the lines that each of them has.
    """
    chunks: Counter[str] = Counter()
    for piece, entry in entries.items():
        if Extent.parse(piece):
            chunks[piece[:ID_DIGITS]] += entry.per_topic.get(topic, 0)
    paths, unsent = chunks_of_files(entries)
    dead = sum(entry.per_topic.get(dead_topic, 0) for entry in entries.values())
    return Files(
        rows=sum(entry.rows for entry in entries.values()) - sum(letters.values()) + len(letters),
        dead=dead + len(letters),
        exact=not any(_is_vague(entry) for entry in entries.values()),
        unsent=tuple(unsent),
        chunks=chunks,
        paths=paths,
    )


def _other_jobs(ledger: Ledger, topic: str) -> dict[str, int]:
    """Records that other jobs sent to the topic; streams keep the last few entries only."""
    found: Counter[str] = Counter()
    for (job, _), entry in ledger.items():
        if not job.startswith(ingest_job(topic, "")):  # to this topic, or to one that was deleted
            found[job] += entry.per_topic.get(topic, 0)
    return {job: rows for job, rows in found.items() if rows}


def _lines_of(value: bytes) -> int:
    """How many lines of the file a dead letter is: blank ones within it do not count as lines.

    >>> _lines_of(b'one,"two\\n\\nthree"')
    2
    """
    lines = value.rstrip(b"\r\n").split(b"\n")
    return max(1, sum(1 for line in lines if line.removesuffix(b"\r")))


def _is_vague(entry: Entry) -> bool:
    """Whether it was sent at least once: nobody has added up a digest then."""
    return entry.rows > 0 and entry.digest == 0


def row_id_of(record: Record) -> str:
    """As the pipeline gives it: the sender's id, else where the record is."""
    for name, value in record.headers:
        if name == ROW_HEADER:
            return _text(value) if value is not None else _place(record)
    return _place(record)


def _place(record: Record) -> str:
    return f"{record.topic}:{record.partition}:{record.offset}"


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex().upper()
