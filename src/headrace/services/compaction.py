"""Small files of a Delta table made few, without Spark and beside any writer.

deltalake rewrites the files, but its commit does not notice another compaction that came first:
the rows would be there twice. So it works on a twin of the table, made of hard links, and its
commit is then put into the table's log under the next number, if that number is free:

1. The twin is made: its log says which version it is of.
2. deltalake compacts the twin: new files, and a commit that swaps them for the old ones.
3. The new files are linked into the table. Nobody knows of them yet.
4. The commit is linked into the log; the file system lets one writer have each number. If another
   was faster, and only added files, the next number is tried: the swap means the same after it.
   Else the new files are removed, and everything begins anew.

A crash at any point leaves the table as it was, or compacted; files that nobody knows of go with
the next vacuum.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson

from headrace.errors import OperationFailed

if TYPE_CHECKING:
    from deltalake import DeltaTable

TARGET_BYTES = 128 << 20
ATTEMPTS = 5
TWINS = ".care-"
_LOG = "_delta_log"
_ADDS_ONLY = {"commitInfo", "add", "txn"}
# What needs nothing in a commit besides the files that go and come.
_PLAIN_FEATURES = {"appendOnly", "invariants", "deletionVectors", "timestampNtz"}


class Overtaken(Exception):
    """Another writer changed the table meanwhile."""


def compact(path: Path, target_bytes: int = TARGET_BYTES) -> bool:
    """Make small files few; returns whether there was something to do."""
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix=TWINS, dir=path.parent) as folder:
            try:
                return _compact_once(path, Path(folder) / path.name, target_bytes)
            except Overtaken:
                continue
    raise OperationFailed(
        f"table {path.name} was changed by others in each of {ATTEMPTS} attempts",
        hint="run this again, or while no pipeline runs",
    )


def _compact_once(path: Path, twin: Path, target_bytes: int) -> bool:
    from deltalake.exceptions import DeltaError

    try:
        table = _twin(path, twin)
        version = table.version()
        _refuse_features(table, path)
        if not _compacted(table, target_bytes):
            return False
    except (OSError, shutil.Error) as error:  # files come and go while they are linked
        raise Overtaken from error
    except DeltaError as error:
        raise OperationFailed(
            f"table {path.name} cannot be compacted: {error}", hint="look at its _delta_log"
        ) from error
    commit = _commit_file(twin, version + 1)
    _publish(path, twin, commit, version + 1)
    return True


def _twin(path: Path, twin: Path) -> "DeltaTable":
    """(1) The log before the files: what it names was there."""
    from deltalake import DeltaTable

    shutil.copytree(path / _LOG, twin / _LOG, copy_function=os.link)
    shutil.copytree(
        path,
        twin,
        copy_function=os.link,
        ignore=shutil.ignore_patterns(_LOG, ".*", "_*"),
        dirs_exist_ok=True,
    )
    return DeltaTable(twin)


def _refuse_features(table: "DeltaTable", path: Path) -> None:
    others = set(table.protocol().writer_features or ()) - _PLAIN_FEATURES
    if others:
        raise OperationFailed(
            f"table {path.name} has features that compaction does not know: "
            f"{', '.join(sorted(others))}",
            hint="use OPTIMIZE in Spark while nobody writes",
        )


def _compacted(table: "DeltaTable", target_bytes: int) -> bool:
    """(2) No checkpoint and no clean-up of the log: those are the writer's."""
    from deltalake import PostCommitHookProperties

    hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    done = table.optimize.compact(target_size=target_bytes, post_commithook_properties=hooks)
    return bool(done["numFilesAdded"])


def _publish(path: Path, twin: Path, commit: Path, number: int) -> None:
    new = [unquote(action["add"]["path"]) for action in _actions(commit) if "add" in action]
    for name in new:  # (3)
        os.link(twin / name, path / name)
    try:
        while not _linked(commit, _commit_file(path, number)):  # (4)
            if not _only_adds(_commit_file(path, number)):
                raise Overtaken
            number += 1
    except BaseException:
        for name in new:
            with contextlib.suppress(FileNotFoundError):
                (path / name).unlink()
        raise


def _linked(commit: Path, place: Path) -> bool:
    try:
        os.link(commit, place)
    except FileExistsError:
        return False
    return True


def _only_adds(commit: Path) -> bool:
    return all(set(action) <= _ADDS_ONLY for action in _actions(commit))


def _actions(commit: Path) -> Iterable[dict[str, Any]]:
    return [orjson.loads(line) for line in commit.read_bytes().splitlines() if line.strip()]


def _commit_file(table: Path, number: int) -> Path:
    return table / _LOG / f"{number:020}.json"
