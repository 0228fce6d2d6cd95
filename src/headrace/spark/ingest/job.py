"""`ingest`: files to a topic, exactly once; run again, it sends only what is new."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from headrace.clients import Admin, Connection, Producer
from headrace.errors import BadInput, OperationFailed, TopicExists
from headrace.observe import Progress, Silent
from headrace.spark.ingest.chunks import Chunk, End, Extent
from headrace.spark.ingest.files import (
    FilePlan,
    expand,
    has_rows,
    length_told,
    missing,
    plan_file,
    planned_ends,
    refuse_changed,
    to_read,
)
from headrace.spark.ingest.formats import Format, format_of, json_fields
from headrace.spark.ingest.limits import Limits, limits_of
from headrace.spark.ingest.options import IngestOptions, IngestResult, check_options
from headrace.spark.ingest.registration import Registered, register
from headrace.spark.ingest.source import ChunkToRead, names_option, plan_option
from headrace.spark.interrupts import cancelled_by_ctrl_c
from headrace.spark.ledger import FILE_ENTRY, Entry, Ledger, ensure_ledger, entry_key, ingest_job
from headrace.spark.running import translate_failure, watching
from headrace.spark.session import session
from headrace.spark.settings import ROWS_UNMEASURED, set_meanwhile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's own sink, tuned: fast, and at least once.
SPARKS_SINK = {
    "linger.ms": "20",
    "batch.size": "262144",
    "compression.type": "lz4",
    "buffer.memory": "67108864",
}


def ingest(
    options: IngestOptions, connection: Connection, progress: Progress | None = None
) -> IngestResult:
    """Send what is new in the files; returns when all of it is visible."""
    return _Ingest(options, connection, progress or Silent()).run()


class _Ingest:
    """One run."""

    def __init__(self, options: IngestOptions, connection: Connection, progress: Progress) -> None:
        self._options, self._connection, self._progress = options, connection, progress
        self._admin = Admin(connection)
        self._topic_id = self._job = ""
        self._limits = Limits()
        self._started = time.monotonic()

    def run(self) -> IngestResult:
        files = expand(self._options.paths)
        check_options(self._options, files, self._connection)
        self._prepare_topics()
        ledger = self._open_ledger()
        plans = self._plan(files, ledger.entries)
        to_do = missing(plans)
        avro = self._register() if to_do else None
        self._remember_files(ledger, plans)
        if to_do:
            self._mark_empty(ledger, to_do)
            with_rows = [each for each in to_do if has_rows(*each)]
            self._send_or_forget(with_rows, ledger, plans, avro)
            ledger.catch_up()
        self._refuse_another_topic()
        return self._account(plans, ledger.entries)

    def _register(self) -> Registered | None:
        if self._options.value != "avro":
            return None
        return register(self._options.schema, self._options.topic, self._connection)

    def _prepare_topics(self) -> None:
        topic = self._options.topic
        partitions = len(self._admin.topic(topic).partitions)
        self._topic_id = self._admin.topic_id(topic)
        self._job = ingest_job(topic, self._topic_id)
        self._limits = self._look_up_limits()
        with contextlib.suppress(TopicExists):
            self._admin.create_topic(self._options.dead_topic, partitions, None, {})

    def _look_up_limits(self) -> Limits:
        options, topic = self._options, self._options.topic
        settings = {config.name: config.value for config in self._admin.configs(topic)}
        now = int(time.time() * 1000)
        limits = limits_of(topic, settings, event_time=options.event_time, now=now)
        if limits.needs_key and (options.key or options.schema.key) is None:
            raise BadInput(
                f"topic {topic!r} is compacted, so that every record needs a key",
                hint=f"--key COLUMN: {', '.join(options.schema.names)}",
            )
        return limits

    def _refuse_another_topic(self) -> None:
        topic = self._options.topic
        if self._admin.topic_id(topic) != self._topic_id:
            raise OperationFailed(
                f"topic {topic!r} was deleted and made again while rows were sent to it",
                hint="make it once more and run this again: it may have a part of the rows",
            )

    def _open_ledger(self) -> Ledger:
        partitions = ensure_ledger(self._connection)
        settings = self._connection.client_settings()
        ledger = Ledger(settings, self._job, partitions)
        ledger.catch_up()
        return ledger

    # --- planning ---

    def _plan(self, files: Sequence[str], entries: dict[str, Entry]) -> list[FilePlan]:
        """The shortest first: what a longer file begins with is planned then, and sent once."""
        plans = self._plan_in_turn(sorted(files, key=length_told), entries)
        by_length = sorted(plans, key=lambda plan: plan.length)
        if by_length == plans:
            return plans
        return self._plan_in_turn([plan.path for plan in by_length], entries)

    def _plan_in_turn(self, files: Sequence[str], entries: dict[str, Entry]) -> list[FilePlan]:
        extents = (Extent.parse(name) for name, entry in entries.items() if entry.complete)
        known = [extent for extent in extents if extent is not None]
        ends = planned_ends(entries)
        sizes = {file: Path(file).stat().st_size for file in files}
        self._progress.begin("fingerprinting", sum(sizes.values()))
        plans = []
        try:
            for file in files:
                plan = self._plan_file(file, known, ends, entries.get(FILE_ENTRY + file))
                plans.append(plan)
                known += [chunk.extent for chunk in plan.chunks if not chunk.done]
                self._progress.advance(sizes[file])
        finally:
            self._progress.end()
        return plans

    def _plan_file(
        self, path: str, known: Sequence[Extent], ends: Sequence[End], before: Entry | None
    ) -> FilePlan:
        options = self._options
        plan = plan_file(path, format_of(path, options.format), known, options.schema, ends)
        if before is not None and not options.changed_is_new:
            refuse_changed(plan, before)
        return plan

    def _remember_files(self, ledger: Ledger, plans: Sequence[FilePlan]) -> None:
        """What each file looks like now, before any of it is sent."""
        seen = {
            FILE_ENTRY + plan.path: {"size": plan.end.end, "content": plan.end.content}
            for plan in plans
            if plan.end is not None
        }
        known = {name: entry.facts for name, entry in ledger.entries.items()}
        new = {name: facts for name, facts in seen.items() if known.get(name) != facts}
        if not new:
            return
        with Producer(self._connection) as producer:
            for name, facts in new.items():
                producer.send(
                    ledger.topic,
                    Entry(0, 0, True, {}, facts).to_bytes(),
                    entry_key(self._job, name),
                    partition=ledger.partition,
                )

    def _mark_empty(self, ledger: Ledger, to_do: Sequence[tuple[FilePlan, Chunk]]) -> None:
        """A header alone is done: no task writes an entry for what has no rows."""
        with Producer(self._connection) as producer:
            for plan, chunk in to_do:
                if not has_rows(plan, chunk):
                    key = entry_key(self._job, str(chunk.extent))
                    value = Entry(0, 0, True, {}).to_bytes()
                    producer.send(ledger.topic, value, key, partition=ledger.partition)

    def _send_or_forget(
        self,
        to_do: Sequence[tuple[FilePlan, Chunk]],
        ledger: Ledger,
        plans: Sequence[FilePlan],
        avro: Registered | None,
    ) -> None:
        if not to_do:
            return
        try:
            self._send([to_read(*each) for each in to_do], ledger, avro)
        except BadInput as refusal:
            self._forget_refused(ledger, plans, refusal)
            raise

    def _forget_refused(self, ledger: Ledger, plans: Sequence[FilePlan], refusal: BadInput) -> None:
        """A file that was refused whole may be mended: it is not a changed one then."""
        ledger.catch_up()
        with Producer(self._connection) as producer:
            for plan in plans:
                sent = any(str(chunk.extent) in ledger.entries for chunk in plan.chunks)
                if len(plan.chunks) == 1 and not sent and f"{plan.path} (" in refusal.message:
                    key = entry_key(self._job, FILE_ENTRY + plan.path)
                    producer.send(ledger.topic, None, key, partition=ledger.partition)

    # --- sending ---

    def _send(self, chunks: Sequence[ChunkToRead], ledger: Ledger, avro: Registered | None) -> None:
        spark = session(master=self._options.master, progress=self._progress)
        pieces = {chunk.piece for chunk in chunks}
        self._progress.begin("sending", sum(chunk.lines for chunk in chunks), "rows")
        try:
            stoppable = cancelled_by_ctrl_c(spark.sparkContext.cancelAllJobs)
            with watching(lambda: self._tell(ledger, pieces)), stoppable:
                for format in sorted({chunk.format for chunk in chunks}):
                    some = [chunk for chunk in chunks if chunk.format == format]
                    self._write(self._table(spark, some, format, avro), some)
        except Exception as failure:
            raise translate_failure(failure, chunks) from failure
        finally:
            self._progress.end()
        if self._options.guarantee == "at-least-once":
            self._mark_sent(ledger, chunks)

    def _tell(self, ledger: Ledger, pieces: set[str]) -> None:
        def rows() -> int:
            return sum(entry.rows for name, entry in ledger.entries.items() if name in pieces)

        before = rows()
        ledger.catch_up()
        self._progress.advance(rows() - before)

    def _table(
        self, spark: Any, chunks: Sequence[ChunkToRead], format: Format, avro: Registered | None
    ) -> "DataFrame":
        from headrace.spark.ingest.events import to_records

        options = self._options
        fields = json_fields(options.schema) if format == "jsonl" else None
        plan = plan_option(chunks, len(options.schema.columns), fields)
        return to_records(
            spark.read.format("headrace-files").option("plan", plan).load(),
            options.schema,
            dead=options.dead_topic,
            key=options.key or options.schema.key,
            value=options.value,
            limits=self._limits,
            format=format,
            avro=avro,
        )

    def _write(self, table: "DataFrame", chunks: Sequence[ChunkToRead]) -> None:
        options = self._options
        if options.guarantee == "at-least-once":
            self._write_with_sparks_own_sink(table)
            return
        writer = table.write.format("headrace").option("job", self._job)
        writer = writer.option("topic", options.topic)
        writer = writer.option("pieces", names_option(chunks))
        writer = writer.option("limitTopic", options.dead_topic)
        writer = writer.option("limitShare", str(options.max_bad))
        writer = writer.option("bootstrap", self._connection.bootstrap)
        writer = writer.options(**self._limits.sink_options)
        # Spark hides the values of options whose names speak of passwords, keys and secrets.
        for name, value in self._connection.settings.items():
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            writer = writer.option(f"kafka.{name}", str(plain))
        with set_meanwhile(table.sparkSession, ROWS_UNMEASURED):  # a chunk's rows fit into memory
            writer.mode("append").save()

    def _write_with_sparks_own_sink(self, table: "DataFrame") -> None:
        if self._connection.settings:
            raise BadInput(
                "at-least-once uses Spark's own sink, which does not know librdkafka's settings",
                hint=f"leave --guarantee out; {self._connection.source} needs settings",
            )
        from headrace.spark.ingest.events import for_sparks_sink

        writer = for_sparks_sink(table, self._options.topic).write.format("kafka")
        for name, value in SPARKS_SINK.items():
            writer = writer.option(f"kafka.{name}", value)
        writer.option("kafka.bootstrap.servers", self._connection.bootstrap).save()

    def _mark_sent(self, ledger: Ledger, chunks: Sequence[ChunkToRead]) -> None:
        """Without transactions the ledger is written when all is sent: after a crash before that,
        all of it is sent again. Bad rows are not told apart."""
        with Producer(self._connection) as producer:
            for chunk in chunks:
                rows = chunk.lines - chunk.skip_lines
                producer.send(
                    ledger.topic,
                    Entry(rows, 0, True, {self._options.topic: rows}).to_bytes(),
                    entry_key(self._job, chunk.piece),
                    partition=ledger.partition,
                )

    def _account(self, plans: Sequence[FilePlan], after: dict[str, Entry]) -> IngestResult:
        counted: set[str] = set()
        sent = dead = skipped = 0
        for plan in plans:
            for chunk in plan.chunks:
                name = str(chunk.extent)
                entry = after.get(name)
                if entry is None:  # a chunk without rows: a header alone
                    continue
                if name in counted or chunk.done:
                    skipped += entry.rows
                else:
                    sent += entry.per_topic.get(self._options.topic, 0)
                    dead += entry.per_topic.get(self._options.dead_topic, 0)
                counted.add(name)
        seconds = time.monotonic() - self._started
        return IngestResult(
            files=len(plans),
            rows_read=sent + dead + skipped,
            rows_sent=sent,
            rows_dead=dead,
            rows_skipped=skipped,
            seconds=round(seconds, 2),
            rows_per_second=round((sent + dead) / seconds, 1) if seconds else 0.0,
        )
