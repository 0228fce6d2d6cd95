"""`ingest`: files to a topic, exactly once; run again, it sends only what is new."""

import contextlib
import glob
import hashlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import SecretStr

from headrace import errors
from headrace.clients import Admin, Connection, Producer
from headrace.errors import BadInput, HeadraceError, OperationFailed, TopicExists
from headrace.observe import Progress, Silent
from headrace.spark.ingest.chunks import HASH_DIGITS, Chunk, Extent, plan_chunks
from headrace.spark.ingest.schema import RowSchema
from headrace.spark.ingest.source import ChunkToRead, open_file, plan_option
from headrace.spark.ledger import Entry, Ledger, ensure_ledger, entry_key
from headrace.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Guarantee = Literal["exactly-once", "at-least-once"]
FILE_ENTRY = "file:"
SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_CANCELS = 0.1
# Spark's own sink, tuned: fast, and at least once.
SPARKS_SINK = {
    "linger.ms": "20",
    "batch.size": "262144",
    "compression.type": "lz4",
    "buffer.memory": "67108864",
}
_RAISED = re.compile(r"headrace\.errors\.(\w+): ([^\n]+)")


@dataclass(frozen=True)
class IngestOptions:
    """What to send where, and how."""

    paths: Sequence[str]
    topic: str
    schema: RowSchema
    key: str | None = None
    value: Literal["json", "csv"] = "json"
    guarantee: Guarantee = "exactly-once"
    event_time: bool = False
    max_bad: float = 0.1
    changed_is_new: bool = False
    master: str | None = None

    @property
    def dead_topic(self) -> str:
        return f"{self.topic}.dead"

    @property
    def job(self) -> str:
        return f"ingest/{self.topic}"


@dataclass(frozen=True)
class IngestResult:
    """Every row of the files, accounted for: sent now, dead now, or skipped as sent before."""

    files: int
    rows_read: int
    rows_sent: int
    rows_dead: int
    rows_skipped: int
    seconds: float
    rows_per_second: float


@dataclass
class FilePlan:
    """A file and its chunks."""

    path: str
    chunks: list[Chunk]
    header: bool

    @property
    def end(self) -> Extent | None:
        return self.chunks[-1].extent if self.chunks else None


def ingest(
    options: IngestOptions, connection: Connection, progress: Progress | None = None
) -> IngestResult:
    """Send what is new in the files; returns when all of it is visible."""
    return _Ingest(options, connection, progress or Silent()).run()


def expand(paths: Sequence[str]) -> list[str]:
    """Files, folders and globs as files, each once, by name."""
    found: dict[str, None] = {}
    for given in paths:
        path = Path(given)
        # A glob may be absolute or relative: Path has no one way for both.
        found_here = sorted(glob.glob(given, recursive=True))  # noqa: PTH207
        matches = [path] if path.exists() else [Path(each) for each in found_here]
        if not matches:
            raise BadInput(f"there is no file {given!r}", hint="check the path, or quote the glob")
        for match in matches:
            inside = sorted(match.rglob("*")) if match.is_dir() else [match]
            found |= {
                str(file.resolve()): None
                for file in inside
                if file.is_file() and not file.name.startswith(".")
            }
    if not found:
        raise BadInput(f"there are no files in {', '.join(paths)}", hint="check the path")
    return list(found)


class _Ingest:
    """One run."""

    def __init__(self, options: IngestOptions, connection: Connection, progress: Progress) -> None:
        self._options, self._connection, self._progress = options, connection, progress
        self._admin = Admin(connection)
        self._started = time.monotonic()

    def run(self) -> IngestResult:
        if self._options.key is not None:
            self._options.schema.column(self._options.key)
        files = expand(self._options.paths)
        self._prepare_topics()
        ledger = self._open_ledger()
        plans = self._plan(files, ledger.entries)
        missing = _missing(plans)
        if missing:
            self._remember_files(ledger, plans)
            self._mark_empty(ledger, missing)
            self._send_or_forget([each for each in missing if _has_rows(*each)], ledger, plans)
            ledger.catch_up()
        return self._account(plans, ledger.entries)

    def _prepare_topics(self) -> None:
        partitions = len(self._admin.topic(self._options.topic).partitions)
        with contextlib.suppress(TopicExists):
            self._admin.create_topic(self._options.dead_topic, partitions, None, {})

    def _open_ledger(self) -> Ledger:
        partitions = ensure_ledger(self._connection)
        settings = self._connection.client_settings()
        ledger = Ledger(settings, self._options.job, partitions)
        ledger.catch_up()
        return ledger

    # --- planning ---

    def _plan(self, files: Sequence[str], entries: dict[str, Entry]) -> list[FilePlan]:
        extents = (Extent.parse(name) for name, entry in entries.items() if entry.complete)
        known = [extent for extent in extents if extent is not None]
        sizes = {file: Path(file).stat().st_size for file in files}
        self._progress.begin("fingerprinting", sum(sizes.values()))
        plans = []
        try:
            # The shortest first: what a longer file begins with is planned then, and sent once.
            for file in sorted(files, key=lambda file: sizes[file]):
                plan = self._plan_file(file, known, entries.get(FILE_ENTRY + file))
                plans.append(plan)
                known += [chunk.extent for chunk in plan.chunks if not chunk.done]
                self._progress.advance(sizes[file])
        finally:
            self._progress.end()
        return plans

    def _plan_file(self, path: str, known: Sequence[Extent], before: Entry | None) -> FilePlan:
        try:
            with open_file(path) as file:
                chunks = plan_chunks(file, known)
            with open_file(path) as file:
                first = file.readline(1 << 16)
        except (OSError, EOFError) as error:
            raise OperationFailed(f"{path} cannot be read: {error}", hint="mend it") from error
        if before is not None and not self._options.changed_is_new:
            _refuse_changed(path, chunks, before)
        header = first.rstrip(b"\r\n").decode("utf-8", "replace")
        return FilePlan(path, chunks, header == ",".join(self._options.schema.names))

    def _remember_files(self, ledger: Ledger, plans: Sequence[FilePlan]) -> None:
        """What each file looks like now, before any of it is sent."""
        with Producer(self._connection) as producer:
            for plan in plans:
                if plan.end is None:
                    continue
                facts = {"size": plan.end.end, "content": plan.end.content}
                producer.send(
                    ledger.topic,
                    Entry(0, 0, True, {}, facts).to_bytes(),
                    entry_key(self._options.job, FILE_ENTRY + plan.path),
                    partition=ledger.partition,
                )

    def _mark_empty(self, ledger: Ledger, missing: Sequence[tuple[FilePlan, Chunk]]) -> None:
        """A header alone is done: no task writes an entry for what has no rows."""
        with Producer(self._connection) as producer:
            for plan, chunk in missing:
                if not _has_rows(plan, chunk):
                    key = entry_key(self._options.job, str(chunk.extent))
                    value = Entry(0, 0, True, {}).to_bytes()
                    producer.send(ledger.topic, value, key, partition=ledger.partition)

    def _send_or_forget(
        self,
        missing: Sequence[tuple[FilePlan, Chunk]],
        ledger: Ledger,
        plans: Sequence[FilePlan],
    ) -> None:
        if not missing:
            return
        try:
            self._send(missing, ledger)
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
                    key = entry_key(self._options.job, FILE_ENTRY + plan.path)
                    producer.send(ledger.topic, None, key, partition=ledger.partition)

    # --- sending ---

    def _send(self, missing: Sequence[tuple[FilePlan, Chunk]], ledger: Ledger) -> None:
        rows = sum(chunk.lines for _plan, chunk in missing)
        spark = session(master=self._options.master, progress=self._progress)
        chunks = [_to_read(plan, chunk) for plan, chunk in missing]
        pieces = {chunk.piece for chunk in chunks}
        self._progress.begin("sending", rows, "rows")
        try:
            stoppable = _cancelled_by_ctrl_c(spark.sparkContext.cancelAllJobs)
            with _watching(lambda: self._tell(ledger, pieces)), stoppable:
                self._write(self._table(spark, chunks))
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

    def _table(self, spark: Any, chunks: Sequence[ChunkToRead]) -> "DataFrame":
        from headrace.spark.ingest.events import to_records

        options = self._options
        width = len(options.schema.columns)
        lines = spark.read.format("headrace-files").option("plan", plan_option(chunks, width))
        return to_records(
            lines.load(),
            options.schema,
            topic=options.topic,
            dead=options.dead_topic,
            key=options.key or options.schema.key,
            value=options.value,
            event_time=options.event_time,
        )

    def _write(self, table: "DataFrame") -> None:
        options = self._options
        if options.guarantee == "at-least-once":
            self._write_with_sparks_own_sink(table)
            return
        writer = table.write.format("headrace").option("job", options.job)
        writer = writer.option("limitTopic", options.dead_topic)
        writer = writer.option("limitShare", str(options.max_bad))
        writer = writer.option("bootstrap", self._connection.bootstrap)
        # Spark hides the values of options whose names speak of passwords, keys and secrets.
        for name, value in self._connection.settings.items():
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            writer = writer.option(f"kafka.{name}", str(plain))
        writer.mode("append").save()

    def _write_with_sparks_own_sink(self, table: "DataFrame") -> None:
        if self._connection.settings:
            raise BadInput(
                "at-least-once uses Spark's own sink, which does not know librdkafka's settings",
                hint=f"leave --guarantee out; {self._connection.source} needs settings",
            )
        writer = table.select("topic", "key", "value", "headers").write.format("kafka")
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
                    entry_key(self._options.job, chunk.piece),
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


def _missing(plans: Sequence[FilePlan]) -> list[tuple[FilePlan, Chunk]]:
    """Chunks to be sent, each once though two files have it."""
    missing: dict[Extent, tuple[FilePlan, Chunk]] = {}
    for plan in plans:
        for chunk in plan.chunks:
            if not chunk.done:
                missing.setdefault(chunk.extent, (plan, chunk))
    return list(missing.values())


def _has_rows(plan: FilePlan, chunk: Chunk) -> bool:
    return chunk.lines > _header_lines(plan, chunk)


def _header_lines(plan: FilePlan, chunk: Chunk) -> int:
    return int(plan.header and chunk.extent.start == 0)


def _to_read(plan: FilePlan, chunk: Chunk) -> ChunkToRead:
    extent = chunk.extent
    return ChunkToRead(
        path=plan.path,
        piece=str(extent),
        start=extent.start,
        end=extent.end,
        first_line=chunk.first_line,
        lines=chunk.lines,
        mid_line=chunk.mid_line,
        skip_lines=_header_lines(plan, chunk),
    )


def _refuse_changed(path: str, chunks: Sequence[Chunk], before: Entry) -> None:
    size, content = before.facts["size"], before.facts["content"]
    if any((chunk.extent.end, chunk.extent.content) == (size, content) for chunk in chunks):
        return
    if _prefix(path, size) == content:  # no chunk ends there: that end was planned, and never sent
        return
    raise BadInput(
        f"{path} has changed since it was sent: its first {size:,} bytes are not what they were",
        hint="put the old content back, or send what is changed in it with --changed-is-new",
        path=path,
    )


def _prefix(path: str, size: int) -> str:
    """What the name of a chunk that ends after `size` bytes begins with."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while size > 0 and (data := file.read(min(size, 1 << 20))):
            digest.update(data)
            size -= len(data)
    return digest.hexdigest()[:HASH_DIGITS]


@contextlib.contextmanager
def _watching(look: Callable[[], None]) -> Iterator[None]:
    """Look again and again, on another thread, while something is done."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SECONDS_BETWEEN_LOOKS):
            with contextlib.suppress(HeadraceError):  # the work itself will say what is wrong
                look()

    thread = threading.Thread(target=watch, name="ingest-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def _cancelled_by_ctrl_c(cancel: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C cancels Spark's work and waits for its end; what is committed stays.

    Spark's own handler calls the JVM from this thread, which waits for an answer of the JVM: it
    fails with tracebacks, and cancels nothing. A second Ctrl-C does not wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed, over = threading.Event(), threading.Event()

    def cancel_until_over() -> None:  # a job may yet begin
        while not over.wait(SECONDS_BETWEEN_CANCELS):
            cancel()

    def handle(_signal: int, _frame: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()
        threading.Thread(target=cancel_until_over, name="ingest-cancel", daemon=True).start()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    except Exception:
        if not pressed.is_set():
            raise
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
    if pressed.is_set():
        raise KeyboardInterrupt


def translate_failure(failure: Exception, chunks: Sequence[ChunkToRead] = ()) -> HeadraceError:
    """What a task raised, out of Spark's long tale of it; pieces are named as parts of files."""
    raised = _RAISED.findall(str(failure))
    if raised:
        name, message = raised[-1]
        for chunk in chunks:
            place = f"{chunk.path} (bytes {chunk.start:,} to {chunk.end:,})"
            message = message.replace(f"piece {chunk.piece}", place)
        return getattr(errors, name, OperationFailed)(message, hint="mend it and run this again")
    if isinstance(failure, HeadraceError):
        return failure
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    first = next((line for line in lines if "An error occurred while calling" not in line), "?")
    return OperationFailed(f"Spark failed: {first}", hint="run again with --debug for all of it")
