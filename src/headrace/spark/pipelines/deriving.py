"""Derived tables: what a batch adds to each, and how it is merged with what the table has.

Measures are such that parts can be added up, in any order; so a batch is summed up first, and only
sums meet the table.
"""

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from headrace.errors import BadInput
from headrace.spark.pipelines.definition import (
    Count,
    Derived,
    Greatest,
    Latest,
    Least,
    Measure,
    Sessions,
    Sum,
    Totals,
    seconds,
)
from headrace.spark.pipelines.lake import Commit, Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Span = tuple[datetime, datetime]
WINDOW_COLUMNS = ("window_start", "window_end")
_PLACE = ("kafka_partition", "kafka_offset")
# No name of a user's has a colon.
_WINDOW, _SESSION = "headrace:window", "headrace:session"
_TOO_LARGE = ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "CAST_OVERFLOW")


def derive(table: Derived, rows: "DataFrame", time: str) -> "DataFrame":
    """The whole table, of these rows alone."""
    if isinstance(table, Totals):
        return totals_of(table, rows, time)
    if isinstance(table, Sessions):
        return sessions_of(table, rows, time)
    return latest_of(table, rows, time)


def write_derived(
    table: Derived, rows: "DataFrame", time: str, span: Span | None, lake: Lake, commit: Commit
) -> None:
    """Merge a batch's rows into a table. `span` is a time that all of them are in."""
    if isinstance(table, Totals):
        _write_totals(table, rows, time, span, lake, commit)
    elif isinstance(table, Sessions):
        _write_sessions(table, rows, time, span, lake, commit)
    else:
        _write_latest(table, rows, time, lake, commit)


@contextlib.contextmanager
def sums_that_fit(table: Derived) -> Iterator[None]:
    """Says which table it is of which a sum does not fit its type: Spark only says that one does
    not."""
    try:
        yield
    except Exception as error:
        if not any(cause in str(error) for cause in _TOO_LARGE):
            raise
        raise BadInput(
            f"table {table.name}: a number is too large for its type",
            hint="give the sum a wider one, Sum(..., type='decimal(38,2)'), and the table is made "
            "anew from the rows; or drop such values with an expectation",
        ) from error


# --- measures ---


def _measured(name: str, measure: Measure) -> "Column":
    """A measure of some rows."""
    if isinstance(measure, Count):
        counted = F.lit(1) if measure.where is None else F.when(F.expr(measure.where), 1)
        return F.count(counted).alias(name)
    value = F.expr(measure.expression)
    if isinstance(measure, Sum):
        value = value.try_cast(measure.type)  # each by itself: the sum of sums is exact then
        if measure.where is not None:
            value = F.when(F.expr(measure.where), value)
        return F.coalesce(F.sum(value), F.lit(0)).cast(measure.type).alias(name)
    return (F.min(value) if isinstance(measure, Least) else F.max(value)).alias(name)


def _combined(name: str, measure: Measure) -> "Column":
    """A measure of the same measure of several parts."""
    if isinstance(measure, Sum):
        return F.sum(name).cast(measure.type).alias(name)
    if isinstance(measure, Count):
        return F.sum(name).alias(name)
    return (F.min(name) if isinstance(measure, Least) else F.max(name)).alias(name)


def _added(name: str, measure: Measure) -> str:
    """The same in SQL, of a table's row `t` and a batch's row `s`."""
    if isinstance(measure, Sum):
        return f"t.`{name}` = cast(t.`{name}` + s.`{name}` as {measure.type})"
    if isinstance(measure, Count):
        return f"t.`{name}` = t.`{name}` + s.`{name}`"
    function = "greatest" if isinstance(measure, Greatest) else "least"  # both pass over nulls
    return f"t.`{name}` = {function}(t.`{name}`, s.`{name}`)"


# --- totals ---


def totals_of(table: Totals, rows: "DataFrame", time: str | None) -> "DataFrame":
    """A table's totals of these rows alone."""
    if table.where is not None:
        rows = rows.where(table.where)
    keys = [F.expr(expression).alias(name) for name, expression in table.by.items()]
    if table.windows is not None and time is not None:
        window = F.window(time, table.windows.length, table.windows.every or table.windows.length)
        rows = rows.withColumn(_WINDOW, window)
        keys += [F.col(_WINDOW)["start"].alias(WINDOW_COLUMNS[0])]
        keys += [F.col(_WINDOW)["end"].alias(WINDOW_COLUMNS[1])]
    measures = [_measured(name, measure) for name, measure in table.measures.items()]
    return rows.groupBy(*keys).agg(*measures)


def key_columns(table: Totals) -> list[str]:
    return [*table.by, *(WINDOW_COLUMNS if table.windows else ())]


def _write_totals(
    table: Totals, rows: "DataFrame", time: str, span: Span | None, lake: Lake, commit: Commit
) -> None:
    totals = totals_of(table, rows, time)
    if not lake.has(table.name):
        lake.append(table.name, totals, commit)
        return
    keys = [f"t.`{name}` <=> s.`{name}`" for name in key_columns(table)]
    if table.windows is not None and span is not None:
        oldest = span[0] - timedelta(seconds=seconds(table.windows.length))
        keys.append(f"t.window_start BETWEEN {_literal(oldest)} AND {_literal(span[1])}")
    on = " AND ".join(keys)
    changes = ", ".join(_added(name, measure) for name, measure in table.measures.items())
    matched = f"WHEN MATCHED THEN UPDATE SET {changes} " if changes else ""
    lake.merge(table.name, totals, on, f"{matched}WHEN NOT MATCHED THEN INSERT *", commit)


# --- sessions ---


def _write_sessions(
    table: Sessions, rows: "DataFrame", time: str, span: Span | None, lake: Lake, commit: Commit
) -> None:
    ours = sessions_of(table, rows, time)
    if not lake.has(table.name) or span is None:
        lake.append(table.name, ours, commit)
        return
    near = _near(table, span)
    ours = ours.persist()
    try:
        keys = ours.select(table.key).distinct()
        theirs = lake.read(table.name).where(near()).join(keys, table.key, "left_semi")
        merged = _joined(table, ours.unionByName(theirs))
        swallowed = theirs.join(merged, [table.key, "begin"], "left_anti")
        changes = merged.withColumn("gone", F.lit(False)).unionByName(
            swallowed.withColumn("gone", F.lit(True))
        )
        columns = [table.key, "begin", "end", *table.measures]
        update = ", ".join(f"t.`{name}` = s.`{name}`" for name in columns)
        names, values = (", ".join(f"{p}`{name}`" for name in columns) for p in ("", "s."))
        lake.merge(
            table.name,
            changes,
            f"t.`{table.key}` = s.`{table.key}` AND t.begin = s.begin AND {near('t.')}",
            "WHEN MATCHED AND s.gone THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {update} "
            f"WHEN NOT MATCHED AND NOT s.gone THEN INSERT ({names}) VALUES ({values})",
            commit,
        )
    finally:
        ours.unpersist()


def sessions_of(table: Sessions, rows: "DataFrame", time: str) -> "DataFrame":
    """The sessions of these rows alone."""
    rows = rows.where(F.col(table.key).isNotNull() & F.col(time).isNotNull())
    before = F.lag(time).over(Window.partitionBy(table.key).orderBy(time))
    number = _numbered(table, F.col(time), before, time)
    measures = [_measured(name, measure) for name, measure in table.measures.items()]
    return (
        rows.withColumn(_SESSION, number)
        .groupBy(table.key, _SESSION)
        .agg(F.min(time).alias("begin"), F.max(time).alias("end"), *measures)
        .drop(_SESSION)
    )


def _joined(table: Sessions, sessions: "DataFrame") -> "DataFrame":
    """Sessions of which some overlap, or have no gap between them, made one."""
    earlier = Window.partitionBy(table.key).orderBy("begin", "end")
    before = F.max("end").over(earlier.rowsBetween(Window.unboundedPreceding, -1))
    number = _numbered(table, F.col("begin"), before, "begin", "end")
    measures = [_combined(name, measure) for name, measure in table.measures.items()]
    return (
        sessions.withColumn(_SESSION, number)
        .groupBy(table.key, _SESSION)
        .agg(F.min("begin").alias("begin"), F.max("end").alias("end"), *measures)
        .drop(_SESSION)
    )


def _numbered(table: Sessions, begin: "Column", before: "Column", *order: str) -> "Column":
    """A number that grows with each gap; `before` is when the last thing before `begin` was."""
    gap = F.unix_micros(begin) - F.unix_micros(before) > seconds(table.gap) * 1_000_000
    opens = F.when(before.isNull() | gap, 1).otherwise(0)
    so_far = Window.partitionBy(table.key).orderBy(*order)
    return F.sum(opens).over(so_far.rowsBetween(Window.unboundedPreceding, 0))


def _near(table: Sessions, span: Span) -> Callable[..., str]:
    """SQL: whether a session is one that rows of this span can belong to. Every session that a
    batch changes is, and so Delta need not look at the files of all others."""
    gap = timedelta(seconds=seconds(table.gap))
    oldest, newest = _literal(span[0] - gap), _literal(span[1] + gap)
    return lambda row="": f"{row}`end` >= {oldest} AND {row}begin <= {newest}"


def _literal(moment: datetime) -> str:
    return f"TIMESTAMP '{moment.isoformat()}'"


# --- the latest ---


def latest_of(table: Latest, rows: "DataFrame", time: str) -> "DataFrame":
    """The newest of these rows for each key."""
    if table.where is not None:
        rows = rows.where(table.where)
    kept = [name for name in table.columns if name not in (table.key, time, *_PLACE)]
    found = F.struct(time, *_PLACE, *kept)
    newest = F.max_by(found, F.struct(time, *_PLACE)).alias("_newest")
    rows = rows.where(F.col(table.key).isNotNull() & F.col(time).isNotNull())
    return rows.groupBy(table.key).agg(newest).select(table.key, "_newest.*")


def _write_latest(table: Latest, rows: "DataFrame", time: str, lake: Lake, commit: Commit) -> None:
    latest = latest_of(table, rows, time)
    if not lake.has(table.name):
        lake.append(table.name, latest, commit)
        return
    place = (time, *_PLACE)
    ours, theirs = (", ".join(f"{row}.`{name}`" for name in place) for row in "st")
    lake.merge(
        table.name,
        latest,
        f"t.`{table.key}` = s.`{table.key}`",
        f"WHEN MATCHED AND struct({ours}) > struct({theirs}) THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *",
        commit,
    )
