"""Delta tables of a lake, read without Spark: one snapshot each, with what its commits say."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from headrace.errors import BadInput, ConfigError, OperationFailed

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_LOG = "_delta_log"


class Snapshot:
    """A table as it was when it was opened."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path
        self._table = _open(path)

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self._table.schema().fields]

    @property
    def version(self) -> int:
        return self._table.version()

    def file_sizes(self) -> list[int]:
        """Bytes of each file that this version has."""
        import pyarrow as pa

        found = pa.table(self._table.get_add_actions(flatten=True))
        return [int(size) for size in found.column("size_bytes").to_pylist()]

    def vacuum(self, hours: int, *, full: bool, execute: bool) -> list[Path]:
        """Files that no version of the last hours needs, removed if `execute` says so; with `full`,
        also those that no commit ever named. Some may be gone already."""
        from deltalake import PostCommitHookProperties
        from deltalake.exceptions import DeltaError

        try:
            found = self._table.vacuum(
                retention_hours=hours,
                dry_run=not execute,
                enforce_retention_duration=False,
                full=full and not self._has_deletion_vectors,
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )
        except DeltaError as error:
            raise OperationFailed(
                f"old files of table {self.name} cannot be removed: {error}",
                hint="use VACUUM in Spark while nobody writes",
            ) from error
        return [self._path / name for name in sorted(set(found))]

    @property
    def _has_deletion_vectors(self) -> bool:
        """Whether it may have them: deltalake takes their files for some that no commit names."""
        return "deletionVectors" in (self._table.protocol().writer_features or ())

    def infos(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What pipelines said in the newest commits of this snapshot, the newest first."""
        version = self._table.version()
        # Commits made since then come first.
        commits = (c for c in self._table.history(limit) if c["version"] <= version)
        found = (_info(commit.get("userMetadata")) for commit in commits)
        return [info for info in found if info is not None]

    def count(self, where: str = "true") -> int:
        """How many rows meet a condition. The log alone may answer that, for files too that are
        gone: rows that nobody can read are not counted."""
        if lost_files(self._path):
            raise self._lost()
        (batch,) = self.select("count(*) AS rows", where)
        return int(batch.column("rows")[0].as_py())

    def select(
        self, columns: str, where: str = "true", order: Sequence[str] = ()
    ) -> Iterator["pa.RecordBatch"]:
        """Columns of the rows that meet a condition. SQL, because it is the one way of deltalake's
        that knows deletion vectors and second checkpoints, which pyarrow's datasets refuse."""
        import pyarrow as pa
        from deltalake import QueryBuilder

        ordered = f" ORDER BY {', '.join(order)}" if order else ""
        query = f"SELECT {columns} FROM t WHERE {where}{ordered}"
        try:
            for batch in QueryBuilder().register("t", self._table).execute(query):
                yield pa.record_batch(batch)
        except Exception as error:  # deltalake raises nothing more precise
            if not lost_files(self._path):
                raise
            raise self._lost() from error

    def _lost(self) -> OperationFailed:
        return OperationFailed(
            f"files of table {self._path} are gone",
            hint="`headrace replay ... --missing` puts their rows back from the topic",
        )


def snapshots(lake: str) -> Iterator[Snapshot]:
    """Every table of a lake."""
    folder = Path(lake)
    if not folder.is_dir():
        raise BadInput(
            f"there is no folder {lake}", hint="give the --lake that `headrace stream` wrote to"
        )
    for path in sorted(folder.iterdir()):
        if has_table(path):
            yield Snapshot(path)


def has_table(path: Path) -> bool:
    """Whether it has a commit: a writer that died in its first left a log without one."""
    return any((path / _LOG).glob("*.json"))


# --- files that are gone ---


def lost_files(path: Path) -> list[str]:
    """Files that the table's log names and the folder does not have."""
    return list(_open(path).repair(dry_run=True)["files_removed"])


def forget_lost_files(path: Path) -> None:
    """Take them out of the log, in a commit of its own: the rest can be read again."""
    _open(path).repair()


@contextlib.contextmanager
def as_if_forgotten(lake: str, lost: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A lake to look at in place of this one: without the files that are gone, which its tables
    name. Its logs are copies, its other files links."""
    if not lost:
        yield lake
        return
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        for path in Path(lake).iterdir():
            if has_table(path):
                _link_all(path, Path(folder) / path.name)
        for name in lost:
            forget_lost_files(Path(folder) / name)
        yield folder


def _link_all(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            if _LOG in path.relative_to(source).parts:
                shutil.copy(path, place)
            else:
                place.symlink_to(path.absolute())


def _open(path: Path) -> "DeltaTable":
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise ConfigError(
            "the package deltalake is not installed", hint="pip install 'headrace[spark]'"
        ) from error
    try:
        return DeltaTable(path)
    except DeltaError as error:
        raise OperationFailed(
            f"table {path} cannot be read: {error}", hint="look at its folder _delta_log"
        ) from error


def _info(text: str | None) -> dict[str, Any] | None:
    """What a pipeline said; None for commits of others."""
    try:
        found = orjson.loads(text or "null")
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) and "so_far" in found else None
