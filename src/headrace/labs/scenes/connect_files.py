"""A file's lines flow through Kafka into another file, by two small configurations and no code.

Kafka Connect runs the two connectors: one reads alert.txt into the topic `alert-connect`, the
other writes the topic to alert-sink.txt. Lines that are appended later flow too. In the end the
file, the topic and the other file hold the same lines in the same order.
"""

import json
import tempfile
import urllib.request
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headrace.errors import OperationFailed
from headrace.labs.stage import Stage

NEEDS_CONNECT = True
NEEDS_FAULTS = True  # the worker must see this machine's files
FIRST_LINES = (
    "Critical: stage 3, the belt stands still",
    "Major: stage 1, oil pressure is low",
    "Minor: stage 2, lamp 4 is out",
)
LATER_LINES = (
    "Warning: stage 2, lamp 5 flickers",
    "",
    "Critical: stage 3, the belt stands still",
    "Minor: stage 5, überhitzt, 過熱",
)
TEXT = "org.apache.kafka.connect.storage.StringConverter"

# No proxy: this never leaves the machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Worker:
    """A Connect worker's REST interface."""

    def __init__(self, address: str) -> None:
        self._connectors = f"{address}/connectors"

    def took(self, name: str, config: dict[str, str]) -> bool:
        """Make a connector. It may be asked twice: PUT makes one or changes it."""
        self._ask("PUT", f"/{name}/config", config)
        return True

    def settled(self, name: str) -> bool:
        """Whether it has tasks, and they run or have failed."""
        states = self.states(name)
        return bool(states) and set(states) <= {"RUNNING", "FAILED"}

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"/{name}")

    def names(self) -> list[str]:
        return list(self._ask("GET", ""))

    def states(self, name: str) -> list[str]:
        """The state of a connector's tasks."""
        return [task["state"] for task in self._ask("GET", f"/{name}/status")["tasks"]]

    def _ask(self, method: str, path: str, document: Any = None) -> Any:
        body = None if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._connectors + path, body, headers, method=method)
        try:
            with _direct.open(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except OSError as error:  # HTTP's refusals too: 409 while the worker is reorganising
            raise OperationFailed(
                f"{method} {request.full_url} failed: {error}", hint="see `headrace logs connect`"
            ) from error


def run(stage: Stage) -> None:
    address = stage.cluster.connect
    assert address is not None
    worker = Worker(address)
    topic = stage.topic("alert-connect")
    # A sink reads as the group connect-NAME; the stage removes it with the rest.
    group = stage.group("connect-alert-sink")
    sink_name = group.removeprefix("connect-")
    source_name = sink_name.replace("sink", "source")
    with tempfile.TemporaryDirectory() as folder:
        source_file, sink_file = Path(folder, "alert.txt"), Path(folder, "alert-sink.txt")
        configs = {
            source_name: source_config(source_file, topic),
            sink_name: sink_config(sink_file, topic),
        }
        for kind, config in zip(("source", "sink"), configs.values(), strict=True):
            table = [{"setting": key, "value": value} for key, value in config.items()]
            stage.fact(f"configuration of the {kind}", table)
        try:
            flow(stage, worker, configs, source_file, sink_file)
        finally:
            remove(stage, worker, list(configs), group)
        judge(stage, topic, source_file, sink_file)


def source_config(file: Path, topic: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        "value.converter": TEXT,
    }


def sink_config(file: Path, topic: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "file": str(file),
        "topics": topic,
        "value.converter": TEXT,
    }


def flow(
    stage: Stage, worker: Worker, configs: dict[str, dict[str, str]], source: Path, sink: Path
) -> None:
    source.write_bytes(as_bytes(FIRST_LINES))
    for name, config in configs.items():
        stage.say(f"starting connector {name}")
        stage.wait_until(partial(worker.took, name, config), f"{name} is taken")
        stage.wait_until(partial(worker.settled, name), f"{name} has a task")
    states = [state for name in configs for state in worker.states(name)]
    stage.check("both connectors run, with a task each", states == ["RUNNING", "RUNNING"])
    wait_for_lines(stage, sink, len(FIRST_LINES))
    stage.check("the lines that were there flow through", sink.read_bytes() == source.read_bytes())
    stage.say(f"appending {len(LATER_LINES)} lines")
    with source.open("ab") as file:
        file.write(as_bytes(LATER_LINES))
    wait_for_lines(stage, sink, len(FIRST_LINES + LATER_LINES))


def as_bytes(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def wait_for_lines(stage: Stage, file: Path, count: int) -> None:
    def arrived() -> bool:
        return file.exists() and file.read_bytes().count(b"\n") >= count

    stage.wait_until(arrived, f"{count} lines are in {file.name}", 90)


def remove(stage: Stage, worker: Worker, names: list[str], group: str) -> None:
    """Take the connectors away, and wait until the sink's group is empty and can go too."""

    def gone(name: str) -> bool:
        if name in worker.names():
            worker.delete(name)
        return name not in worker.names()

    def left() -> bool:
        return group not in stage.admin.group_names() or not stage.admin.group(group).members

    for name in names:
        stage.wait_until(partial(gone, name), f"connector {name} is gone")
    stage.wait_until(left, f"group {group} is empty")


def judge(stage: Stage, topic: str, source: Path, sink: Path) -> None:
    expected = list(FIRST_LINES + LATER_LINES)
    records = stage.records(topic)
    in_topic = [(record.value or b"").decode() for record in records]
    table = [{"offset": r.offset, "line": v} for r, v in zip(records, in_topic, strict=True)]
    stage.fact("in the topic", table)
    stage.fact("bytes in alert.txt", source.stat().st_size)
    stage.fact("bytes in alert-sink.txt", sink.stat().st_size)
    stage.check("the topic holds every line once, in order", in_topic == expected)
    stage.check(
        "so does the other file: both files are the same, byte for byte",
        sink.read_bytes() == source.read_bytes() == as_bytes(expected),
    )
