"""Delta tables of a lake, read without Spark: one snapshot each, with what its commits say."""

from collections.abc import Iterator, Sequence
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
        self._table = _open(path)

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self._table.schema().fields]

    def infos(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What pipelines said in the newest commits of this snapshot, the newest first."""
        version = self._table.version()
        # Commits made since then come first.
        commits = (c for c in self._table.history(limit) if c["version"] <= version)
        found = (_info(commit.get("userMetadata")) for commit in commits)
        return [info for info in found if info is not None]

    def count(self, where: str = "true") -> int:
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
        for batch in QueryBuilder().register("t", self._table).execute(query):
            yield pa.record_batch(batch)


def snapshots(lake: str) -> Iterator[Snapshot]:
    """Every table of a lake."""
    folder = Path(lake)
    if not folder.is_dir():
        raise BadInput(
            f"there is no folder {lake}", hint="give the --lake that `headrace stream` wrote to"
        )
    for path in sorted(folder.iterdir()):
        if (path / _LOG).is_dir():
            yield Snapshot(path)


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
