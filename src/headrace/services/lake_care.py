"""The tables of a lake: what they are, and care for their files. No Spark is needed."""

import contextlib
import fcntl
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.errors import BadInput, OperationFailed
from headrace.observe import Progress, Silent
from headrace.services.compaction import TARGET_BYTES, TWINS, compact
from headrace.services.delta_tables import Snapshot, has_table

KEEP = timedelta(days=7)
# A batch may read a table's files, or have written some that no commit names yet, for so long.
SHORTEST_KEEP = timedelta(hours=1)
LONGEST_BATCH = timedelta(days=1)
_LOCK = ".care.lock"


@dataclass(frozen=True)
class TableState:
    """A table as it is now, and what a pipeline last said in it. Its rows are unknown if it has a
    problem."""

    table: str
    rows: int | None
    files: int
    bytes: int
    version: int
    pipeline: str | None
    batch: int | None
    offsets: dict[str, dict[str, int]]
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TableCare:
    """What is to be done for a table, or what was done. `small` files are those that can be joined
    with others; `removed` ones (or to be removed) no version needs that is younger than asked."""

    table: str
    files: int
    bytes: int
    small: int
    removed: int
    removed_bytes: int
    files_after: int | None = None
    bytes_after: int | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def list_tables(lake: str) -> list[TableState]:
    """Every table of a lake."""
    return [_state(Snapshot(path)) for path in _paths(lake)]


def care(
    lake: str,
    tables: Sequence[str] = (),
    keep: timedelta = KEEP,
    *,
    execute: bool = False,
    target_bytes: int = TARGET_BYTES,
    progress: Progress | None = None,
) -> list[TableCare]:
    """Join small files, and remove those that no version of the last `keep` needs; without
    `execute`, say what would be done. A table that cannot be cared for is a problem of its own."""
    paths = _paths(lake, tables)
    if not execute:
        return [_plan(path, keep, target_bytes) for path in paths]
    with _alone(Path(lake)):
        done = []
        for path in paths:
            (progress or Silent()).step(f"table {path.name}")
            done.append(_care_for(path, keep, target_bytes))
        return done


def check_keep(keep: timedelta) -> None:
    """Refuse to remove what somebody may be reading."""
    if keep < SHORTEST_KEEP:
        raise BadInput(
            f"files may be needed for longer than {keep}", hint="--keep 1h is the shortest"
        )


def _paths(lake: str, wanted: Sequence[str] = ()) -> list[Path]:
    folder = Path(lake)
    if not folder.is_dir():
        raise BadInput(
            f"there is no folder {lake}", hint="give the --lake that `headrace stream` wrote to"
        )
    names = sorted(path.name for path in folder.iterdir() if has_table(path))
    for name in wanted:
        if name not in names:
            known = f"there is {', '.join(names)}" if names else "it has no table at all"
            raise BadInput(f"{lake} has no table {name!r}", hint=known)
    return [folder / name for name in wanted or names]


def _state(table: Snapshot) -> TableState:
    (info,) = table.infos()[:1] or [{}]
    ranges = info.get("so_far", {}).get("ranges", {})
    sizes = table.file_sizes()
    rows, problem = _rows(table)
    return TableState(
        table=table.name,
        rows=rows,
        files=len(sizes),
        bytes=sum(sizes),
        version=table.version,
        pipeline=info.get("pipeline"),
        batch=info.get("batch"),
        offsets={
            topic: {partition: end for partition, (_, end) in places.items()}
            for topic, places in ranges.items()
        },
        problem=problem,
    )


def _rows(table: Snapshot) -> tuple[int | None, str | None]:
    """How many there are, or why nobody can tell."""
    try:
        return table.count(), None
    except OperationFailed as error:
        return None, _told(error)


def _plan(path: Path, keep: timedelta, target_bytes: int) -> TableCare:
    sizes: list[int] = []
    old: dict[Path, int] = {}
    problem = None
    try:
        table = Snapshot(path)
        sizes = table.file_sizes()
        old = _sizes(table.vacuum(_hours(keep), full=keep >= LONGEST_BATCH, execute=False))
    except OperationFailed as error:
        problem = _told(error)
    small = [size for size in sizes if size < target_bytes]
    return TableCare(
        table=path.name,
        files=len(sizes),
        bytes=sum(sizes),
        small=len(small) if len(small) > 1 else 0,
        removed=len(old),
        removed_bytes=sum(old.values()),
        problem=problem,
    )


def _care_for(path: Path, keep: timedelta, target_bytes: int) -> TableCare:
    plan = _plan(path, keep, target_bytes)
    if plan.problem:
        return replace(plan, removed=0, removed_bytes=0)
    problems: list[str] = []
    removed: dict[Path, int] = {}
    try:
        compact(path, target_bytes)
    except OperationFailed as error:
        problems.append(_told(error))
    try:
        removed = _vacuum(path, keep)
    except OperationFailed as error:
        problems.append(_told(error))
    sizes = Snapshot(path).file_sizes()
    changes = {
        "removed": len(removed),
        "removed_bytes": sum(removed.values()),
        "files_after": len(sizes),
        "bytes_after": sum(sizes),
        "problem": "; ".join(problems) or None,
    }
    return TableCare(**asdict(plan) | changes)


def _told(error: OperationFailed) -> str:
    return f"{error.message} ({error.hint})"


def _vacuum(path: Path, keep: timedelta) -> dict[Path, int]:
    """Removes old files; returns those that are gone. Spark's checksums beside them go too."""
    table, hours, full = Snapshot(path), _hours(keep), keep >= LONGEST_BATCH
    old = _sizes(table.vacuum(hours, full=full, execute=False))
    if not old:
        return {}
    table.vacuum(hours, full=full, execute=True)
    for file in old:
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return {file: size for file, size in old.items() if not file.exists()}


def _sizes(files: Sequence[Path]) -> dict[Path, int]:
    """Of files that are there: a log names those too that are long gone."""
    return {file: file.stat().st_size for file in files if file.is_file()}


def _hours(keep: timedelta) -> int:
    return math.ceil(keep / timedelta(hours=1))


@contextlib.contextmanager
def _alone(lake: Path) -> Iterator[None]:
    """One care at a time: two would do the same work, and what a killed one left can be removed."""
    with (lake / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OperationFailed(
                f"another command cares for the tables of {lake}", hint="wait for its end"
            ) from None
        for left in lake.glob(f"{TWINS}*"):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
        yield
