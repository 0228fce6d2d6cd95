"""What a broker's log files hold, batch by batch, as Kafka's own tool reads them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.labs.stage import Stage

KAFKAS_TOOL = "org.apache.kafka.tools.DumpLogSegments"
_FILE = re.compile(r"^Dumping (?P<path>.+)$")
_BATCH = re.compile(
    r"^baseOffset: .* count: (?P<records>\d+) .* size: (?P<bytes>\d+) .*"
    r" compresscodec: (?P<codec>\w+) .* isvalid: true$"
)


@dataclass(frozen=True)
class Batch:
    """A batch as it stands on disk; `codec` is what it is compressed with, or `none`."""

    records: int
    bytes: int
    codec: str


def folder_of(stage: Stage, topic: str, partition: int = 0) -> Path:
    """Where the leader keeps a partition."""
    leader = stage.admin.topic(topic).partitions[partition].leader or 1
    return stage.cluster.data_folder(leader) / f"{topic}-{partition}"


def stored_batches(stage: Stage, topics: Sequence[str]) -> dict[str, list[Batch]]:
    """The batches in partition 0 of each topic, all read in one run of the tool."""
    files = {str(f): t for t in topics for f in sorted(folder_of(stage, t).glob("*.log"))}
    printed = stage.cluster.run_tool(KAFKAS_TOOL, "--files", ",".join(files))
    found: dict[str, list[Batch]] = {topic: [] for topic in topics}
    topic = ""
    for line in printed.splitlines():
        if file := _FILE.match(line):
            topic = files[file["path"]]
        elif batch := _BATCH.match(line):
            stored = Batch(int(batch["records"]), int(batch["bytes"]), batch["codec"].lower())
            found[topic].append(stored)
    return found


def bytes_on_disk(stage: Stage, topic: str) -> int:
    """The size of the log of partition 0."""
    return sum(file.stat().st_size for file in folder_of(stage, topic).glob("*.log"))
