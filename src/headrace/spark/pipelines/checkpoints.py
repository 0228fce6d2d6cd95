"""What Spark's checkpoint of a query knows: the offsets of each batch."""

from typing import TYPE_CHECKING, Any

import orjson

from headrace.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By topic, by partition: offsets from which and up to which a batch goes.
Offsets = dict[str, dict[str, int]]
Ranges = dict[str, dict[str, tuple[int, int]]]


class Checkpoint:
    """A checkpoint's folder, on whatever file system Spark keeps it."""

    def __init__(self, spark: "SparkSession", folder: str) -> None:
        self._spark = spark
        self.folder = folder.rstrip("/")

    @property
    def open_batch(self) -> Ranges | None:
        """The ranges of the batch that was begun and of which Spark does not know the end."""
        newest = self._newest("offsets")
        return self.ranges(newest) if newest > self._newest("commits") else None

    @property
    def ends(self) -> Offsets:
        """Where the batches end that are done."""
        return self._end(self._newest("commits")) or {}

    def ranges(self, batch: int) -> Ranges:
        """The offset ranges of a batch. Spark writes them down before it runs the batch."""
        return ranges_between(self._begin(batch), self._end(batch) or {})

    def _begin(self, batch: int) -> Offsets:
        if batch > 0 and (end := self._end(batch - 1)) is not None:
            return end
        return self._offsets("sources/0/0") or {}

    def _end(self, batch: int) -> Offsets | None:
        return self._offsets(f"offsets/{batch}")

    def _offsets(self, name: str) -> Offsets | None:
        try:
            return parse_offsets(self.read(name))
        except (LookupError, ValueError) as error:  # a machine that lost its power, say
            raise BadInput(
                f"{self.folder}/{name} is damaged: no offsets can be read from it",
                hint="delete the checkpoint's folder: tables know how far they are, and the next "
                "run goes on there; a pipeline that writes to a topic sends everything again",
            ) from error

    def read(self, name: str) -> str | None:
        """A file's text, or None if there is none."""
        files, path = self._find(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            jvm: Any = self._spark._jvm
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """A file beside Spark's own, whole or not at all."""
        if self.read(name) == text:
            return
        files, path = self._find(name)
        _, beside = self._find(f".{name}.new")
        stream = files.create(beside, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        files.delete(path, False)
        files.rename(beside, path)

    def _newest(self, log: str) -> int:
        """The number of the last entry in one of Spark's logs, or -1."""
        files, path = self._find(log)
        found = files.listStatus(path) if files.exists(path) else ()
        names = [each.getPath().getName() for each in found]
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _find(self, name: str) -> tuple[Any, Any]:
        jvm: Any = self._spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration()), path


def parse_offsets(text: str | None) -> Offsets | None:
    """The offsets in a file of Spark's log: a version, perhaps other lines, and at last a JSON.

    >>> parse_offsets('v1\\n{"batchWatermarkMs":0}\\n{"clicks":{"0":7}}')
    {'clicks': {'0': 7}}
    """
    if text is None:
        return None
    # The first file of a source begins with a zero byte, for old versions of Spark.
    last = text.strip("\x00\n ").splitlines()[-1]
    found = orjson.loads(last[last.index("{") :])
    return {topic: {p: int(at) for p, at in places.items()} for topic, places in found.items()}


def ranges_between(begin: Offsets, end: Offsets) -> Ranges:
    """A partition that is new begins at 0.

    >>> ranges_between({"clicks": {"0": 3}}, {"clicks": {"0": 7, "1": 2}})
    {'clicks': {'0': (3, 7), '1': (0, 2)}}
    """
    return {
        topic: {p: (begin.get(topic, {}).get(p, 0), at) for p, at in places.items()}
        for topic, places in end.items()
    }
