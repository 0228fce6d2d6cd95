"""Do the rows add up? Plain values in, a verdict out.

    rows in files      = records in Kafka + dead letters of ingest
    records in Kafka   = rows of the table + dead letters of the pipeline + duplicates removed

What is not equal becomes a finding that says where. `reconcile_sources` gathers the values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from headrace.services.reconcile_places import Lines, Run, Seen
from headrace.spark.pipelines.accounts import Counts

MOST_RANGES = 20  # of one kind that are named; the rest is summed up


@dataclass(frozen=True)
class Finding:
    """Something to know: what, where (`first` to `last`, both included), how many, what to do.

    One that `fails` means that the rows do not add up.
    """

    what: str
    where: str
    hint: str
    count: int | None = None
    first: int | None = None
    last: int | None = None
    fails: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "where": self.where,
            "from": self.first,
            "to": self.last,
            "count": self.count,
            "hint": self.hint,
            "fails": self.fails,
        }


@dataclass(frozen=True)
class Unsent:
    """Bytes of a file of which the ledger has no finished piece; not `sure`, of which it may have
    one, or another file's."""

    path: str
    first: int
    last: int
    sure: bool = True


@dataclass(frozen=True)
class Files:
    """What the ledger says of the files: their rows, and what became of them.

    Of rows that were sent at least once (not `exact`) the topic may have some twice. `chunks` are
    the records of each chunk of a file, by the first digits of its name, and `paths` their files.
    """

    rows: int
    dead: int
    exact: bool = True
    unsent: tuple[Unsent, ...] = ()
    chunks: Mapping[str, int] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        return self.rows - self.dead


@dataclass(frozen=True)
class Partition:
    """A partition of the topic, and from which offset up to which the table has read it."""

    number: int
    earliest: int
    latest: int
    begin: int
    end: int
    unread: int = 0


@dataclass(frozen=True)
class PassedOver:
    """Offsets that the table has not read though it has read later ones; `records` is None if
    they are gone."""

    partition: int
    first: int
    last: int
    records: int | None


@dataclass(frozen=True)
class Topic:
    """The topic's side. `jobs` are records that other jobs of Headrace's sink wrote into it."""

    name: str
    partitions: Sequence[Partition]
    passed_over: Sequence[PassedOver] = ()
    jobs: Mapping[str, int] = field(default_factory=dict)

    @property
    def unread(self) -> int:
        return sum(partition.unread for partition in self.partitions)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was removed from its beginning."""
        return all(partition.earliest == 0 for partition in self.partitions)


@dataclass(frozen=True)
class Source:
    """A topic that the table is made of. `files` is None if no file was ever sent to it by
    `ingest`; `seen` is what a comparison record by record has found."""

    topic: Topic
    files: Files | None = None
    seen: Seen | None = None


@dataclass(frozen=True)
class Table:
    """The table of rows: what is in it and among its dead letters, and what it counted."""

    name: str
    rows: int
    dead: int
    counts: Counts


@dataclass(frozen=True)
class Account:
    """The verdict. Records in Kafka are rows, dead letters, duplicates, unread or missing; what is
    in a table and came from no record is `extra`."""

    topics: tuple[str, ...]
    file_rows: int | None
    kafka_rows: int
    dead_rows: int
    file_dead_rows: int | None
    pipeline_dead_rows: int
    table_rows: int
    duplicates: int
    unread: int
    missing: int
    extra: int
    late: Mapping[str, int]
    findings: tuple[Finding, ...]

    @property
    def balanced(self) -> bool:
        return not any(finding.fails for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {
            "topics": list(self.topics),
            "late": dict(self.late),
            "balanced": self.balanced,
            "findings": [finding.to_json() for finding in self.findings],
        }


def judge(table: Table, *sources: Source) -> Account:
    """Add it all up: the table's counts are of all its topics together."""
    counts, topics = table.counts, [source.topic for source in sources]
    files = _together([source.files for source in sources if source.files is not None])
    passed = sum(each.records or 0 for topic in topics for each in topic.passed_over)
    unread = sum(topic.unread for topic in topics)
    kafka_rows = counts.rows_in + unread + passed
    lost = counts.rows_in - counts.rows_out - counts.rows_dead - counts.duplicates
    short = max(0, counts.rows_out - table.rows) + max(0, counts.rows_dead - table.dead)
    extra = max(0, table.rows - counts.rows_out) + max(0, table.dead - counts.rows_dead)
    extra += max(0, -lost)
    seen = sum(source.seen.missing_count for source in sources if source.seen is not None)
    missing = passed + max(max(0, lost) + short, seen)
    findings = [
        *(finding for topic in topics for finding in _of_topic(topic)),
        *_of_counts(table, lost),
        *_of_table(table),
        *_of_files(sources, files, kafka_rows),
        *(finding for source in sources for finding in _of_records(source, table)),
    ]
    return Account(
        topics=tuple(topic.name for topic in topics),
        file_rows=None if files is None else files.rows,
        kafka_rows=kafka_rows,
        dead_rows=table.dead + (0 if files is None else files.dead),
        file_dead_rows=None if files is None else files.dead,
        pipeline_dead_rows=table.dead,
        table_rows=table.rows,
        duplicates=counts.duplicates,
        unread=unread,
        missing=missing + _not_in_kafka(files, kafka_rows),
        extra=extra,
        late=counts.late,
        findings=tuple(findings),
    )


def gaps(ranges: Sequence[Mapping[str, tuple[int, int]]]) -> list[tuple[int, int, int]]:
    """Offsets between one batch's end and the next one's beginning: partition, first, last.

    >>> gaps([{"0": (0, 5)}, {"0": (5, 9), "1": (0, 2)}, {"0": (12, 13)}])
    [(0, 9, 11)]
    """
    found = []
    for before, after in pairwise(ranges):
        for partition, (begin, _) in after.items():
            end = before.get(partition, (begin, begin))[1]
            if end < begin:
                found.append((int(partition), end, begin - 1))
    return found


# --- the topic ---


def _of_topic(topic: Topic) -> Iterator[Finding]:
    for partition in topic.partitions:
        where = f"{topic.name}[{partition.number}]"
        if partition.unread:
            yield Finding(
                "records that the table has not read yet",
                where,
                "run `headrace stream`, or wait for it",
                partition.unread,
                max(partition.end, partition.earliest),
                partition.latest - 1,
            )
        yield from _of_removed(partition, where)
    for passed in topic.passed_over:
        yield Finding(
            "records that the table has passed over",
            f"{topic.name}[{passed.partition}]",
            "read the topic anew into another --lake",
            passed.records,
            passed.first,
            passed.last,
        )


def _of_removed(partition: Partition, where: str) -> Iterator[Finding]:
    """What retention took away: known if the table has read it, and lost if it has not."""
    if partition.earliest > partition.end:
        yield Finding(
            "offsets were removed by retention before the table has read them",
            where,
            "keep records longer than the pipeline may stand still: retention.ms, retention.bytes",
            None,
            partition.end,
            partition.earliest - 1,
        )
    elif partition.earliest > partition.begin:
        yield Finding(
            "offsets were removed by retention after the table has read them",
            where,
            "nothing to do: the table has them",
            None,
            partition.begin,
            partition.earliest - 1,
            fails=False,
        )
    if partition.begin > 0 and partition.earliest >= partition.begin:
        yield Finding(
            "offsets were gone before the table began to read",
            where,
            "nobody can tell whether there were records, unless they came from files",
            None,
            0,
            partition.begin - 1,
            fails=False,
        )


# --- the table ---


def _of_counts(table: Table, lost: int) -> Iterator[Finding]:
    if lost:
        counts = table.counts
        yield Finding(
            f"{counts.rows_in:,} records came in, but {counts.rows_out:,} rows, "
            f"{counts.rows_dead:,} dead letters and {counts.duplicates:,} duplicates are not that",
            table.name,
            "this is a defect in the pipeline: please report it",
            abs(lost),
        )


def _of_table(table: Table) -> Iterator[Finding]:
    pairs = (
        (table.name, "rows", table.rows, table.counts.rows_out),
        ("dead_letters", "dead letters", table.dead, table.counts.rows_dead),
    )
    for where, kind, found, written in pairs:
        if found < written:
            yield Finding(
                f"{written:,} {kind} were written, {found:,} are there: somebody has deleted some",
                where,
                "--full names them; `headrace replay PIPELINE --missing` puts them back, as does "
                "Delta's RESTORE",
                written - found,
            )
        elif found > written:
            yield Finding(
                f"{written:,} {kind} were written, {found:,} are there: somebody has added some",
                where,
                "look for who else writes into the table: DESCRIBE HISTORY",
                found - written,
            )


# --- the files ---


def _together(files: Sequence[Files]) -> Files | None:
    if not files:
        return None
    return Files(
        rows=sum(each.rows for each in files),
        dead=sum(each.dead for each in files),
        exact=all(each.exact for each in files),
        unsent=tuple(unsent for each in files for unsent in each.unsent),
    )


def _not_in_kafka(files: Files | None, kafka_rows: int) -> int:
    return 0 if files is None else max(0, files.sent - kafka_rows)


def _of_files(sources: Sequence[Source], files: Files | None, kafka_rows: int) -> Iterator[Finding]:
    if files is None:
        return
    names = ", ".join(source.topic.name for source in sources)
    for unsent in files.unsent:
        yield _unsent(unsent)
    if missing := _not_in_kafka(files, kafka_rows):
        yield Finding(
            f"ingest has sent {files.sent:,} rows, {kafka_rows:,} were ever in the topic",
            names,
            "removed by retention before they were read, or the topic was made anew: "
            "read them again into another topic",
            missing,
        )
    elif any(source.files is None for source in sources):
        if all(source.seen is not None for source in sources):
            return
        yield Finding(
            "rows of files are among records that came from no file",
            names,
            "--full tells them apart",
            fails=False,
        )
    elif foreign := kafka_rows - files.sent:
        yield _foreign(names, sources, files, foreign)


def _unsent(unsent: Unsent) -> Finding:
    what = "bytes of a file that were never sent to their end"
    hint = "run `headrace ingest` for it again"
    if not unsent.sure:
        what = "bytes of a file that may never have been sent: what was may be another file's"
        hint += ", which sends what is missing; with the file in its place this is certain"
    return Finding(what, unsent.path, hint, None, unsent.first, unsent.last)


def _foreign(names: str, sources: Sequence[Source], files: Files, count: int) -> Finding:
    if not files.exact:
        return Finding(
            "records more than rows in files: some were sent twice, as at-least-once may, "
            "or somebody else writes into the topic",
            names,
            "nothing to do: duplicates are removed",
            count,
            fails=False,
        )
    found = [job for source in sources for job in source.topic.jobs.items()]
    jobs = ", ".join(f"{job} ({rows:,})" for job, rows in sorted(found))
    return Finding(
        "records that came from no file: somebody else writes into the topic",
        names,
        f"jobs of format('headrace') do: {jobs}" if jobs else "--full names their offsets",
        count,
    )


# --- record by record ---


def _of_records(source: Source, table: Table) -> Iterator[Finding]:
    if source.seen is not None:
        yield from _of_seen(source.topic, table, source.seen)
        yield from _of_chunks(source.topic, source.files, source.seen)


def _of_seen(topic: Topic, table: Table, seen: Seen) -> Iterator[Finding]:
    yield from _named(
        "records that are neither rows nor dead letters nor duplicates",
        _places(topic.name, seen.missing),
        f"put them back with `headrace replay PIPELINE --topic {topic.name} --missing`",
    )
    yield from _named(
        "the same by file: lines that are in no table",
        ((lines.file, lines) for lines in seen.missing_lines),
        "these are the lines of the file",
    )
    yield from _named(
        f"rows that are in {table.name} more than once",
        _places(topic.name, seen.twice),
        "somebody has added rows by hand: DESCRIBE HISTORY",
    )
    yield from _named(
        "rows and dead letters whose record is not in the topic",
        _places(topic.name, seen.unexplained),
        "added by hand, or the topic is compacted",
        fails=False,
    )


def _of_chunks(topic: Topic, files: Files | None, seen: Seen) -> Iterator[Finding]:
    """Which records are of no file, and which rows of files are no records."""
    if files is None:
        return
    yield from _named(
        "these are the records that came from no file",
        _places(topic.name, seen.foreign),
        "look at them with `headrace consume`",
    )
    if topic.is_whole:
        for chunk, sent in sorted(files.chunks.items()):
            if (found := seen.chunks.get(chunk, 0)) < sent and files.exact:
                yield Finding(
                    f"{sent:,} rows of a file were sent, {found:,} are in the topic",
                    files.paths.get(chunk, f"chunk {chunk}"),
                    "somebody has deleted records, or made the topic anew",
                    sent - found,
                )


def _places(topic: str, runs: Iterable[Run]) -> Iterator[tuple[str, Run]]:
    return ((f"{topic}[{run.partition}]", run) for run in runs)


def _named(
    what: str, places: Iterable[tuple[str, Run | Lines]], hint: str, *, fails: bool = True
) -> Iterator[Finding]:
    every = list(places)
    for where, run in every[:MOST_RANGES]:
        yield Finding(what, where, hint, run.size, run.first, run.last, fails)
    if rest := every[MOST_RANGES:]:
        count = sum(run.size for _, run in rest)
        yield Finding(what, f"{len(rest):,} more ranges", hint, count, fails=fails)
