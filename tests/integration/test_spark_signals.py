"""SIGINT and SIGTERM end every Spark command in order, whenever they come.

Exit status 130 or 143, `stopped` as the last line, no traceback, and nothing left running. A signal
for the whole process group, as from a terminal, does the same.
"""

import os
import re
import secrets
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import headrace as hr
from support.cli import HEADRACE
from support.lake import some_events
from support.processes import kill, processes_with
from support.waiting import eventually

INT, TERM = signal.SIGINT, signal.SIGTERM
SECONDS = 180
SECONDS_TO_STOP = 60
SECONDS_TO_BE_GONE = 30
VARIABLE = "HEADRACE_TESTED_COMMAND"
NOISE = re.compile(r"Traceback|Exception|ERROR|defect|py4j|error:", re.IGNORECASE)
EVENTS = 200

# Each moment is the text after which the command is signalled, and for how many seconds to wait
# then. The JVM takes longer to start than this wait.
JVM_STARTS = ("stderr", "starting Spark", 0.5)
SPARK_STARTS = ("stderr", "incubator modules", 1.5)
RESULT_IS_PRINTED = ("stdout", "{", 0.0)
IS_SENDING = ("stderr", r"sending \(", 3.0)
IS_READING = ("stderr", r"reading \(", 2.0)
FIRST_ROW = ("stdout", "{", 0.5)
FIRST_BATCH = ("stderr", "batch 0", 0.5)
STREAM_RUNS = ("stderr", "pipeline clickstream", 5.0)

INGEST = ("ingest", "events.csv", "--topic", "{topic}", "-o", "json")
STREAM = ("stream", "clickstream", "--topic", "{topic}", "--lake", "lake", "-o", "json")
RANGE = ("--from", "earliest", "--to", "latest", "--execute")
REPLAY = ("replay", "clickstream", "--topic", "{topic}", "--lake", "lake", *RANGE)
COUNT = ("sql", "SELECT count(*) AS n FROM `{topic}`", "-o", "ndjson")
MANY_ROWS = ("sql", "SELECT a.offset FROM `{topic}` a, `{topic}` b, `{topic}` c", "-o", "ndjson")


@dataclass(frozen=True)
class Case:
    """A command and when it is signalled; `statuses` are those it may end with."""

    command: tuple[str, ...]
    moment: tuple[str, str, float]
    signal: signal.Signals
    group: bool = False
    statuses: tuple[int, ...] = ()

    @property
    def expected(self) -> tuple[int, ...]:
        return self.statuses or (128 + self.signal,)


def long(seconds, name, *facts, **more):
    return pytest.param(Case(*facts, **more), id=name, marks=pytest.mark.long(seconds))


CASES = [
    pytest.param(Case(COUNT, JVM_STARTS, INT, group=True), id="sql-jvm-starts-int-group"),
    long(3, "sql-jvm-starts-term-group", COUNT, JVM_STARTS, TERM, group=True),
    long(11, "ingest-jvm-starts-int", INGEST, JVM_STARTS, INT),
    long(11, "ingest-spark-starts-term", INGEST, SPARK_STARTS, TERM),
    long(63, "ingest-sends-int-group", INGEST, IS_SENDING, INT, group=True),
    long(51, "ingest-sends-term-group", INGEST, IS_SENDING, TERM, group=True),
    long(46, "ingest-ends-term", INGEST, RESULT_IS_PRINTED, TERM, statuses=(0, 143)),
    long(3, "stream-once-spark-starts-int", (*STREAM, "--once"), SPARK_STARTS, INT),
    long(21, "stream-once-reads-term-group", (*STREAM, "--once"), IS_READING, TERM, group=True),
    long(
        *(6, "stream-every-spark-starts-term", (*STREAM, "--every", "1s"), SPARK_STARTS, TERM),
        group=True,
    ),
    long(
        *(25, "stream-every-runs-term-group", (*STREAM, "--every", "1s"), STREAM_RUNS, TERM),
        group=True,
        statuses=(0,),
    ),
    long(35, "replay-reads-term-group", REPLAY, IS_READING, TERM, group=True),
    long(35, "sql-rows-int-group", MANY_ROWS, FIRST_ROW, INT, group=True),
    long(25, "sql-ends-int", COUNT, RESULT_IS_PRINTED, INT, statuses=(0, 130)),
    long(
        *(33, "sql-follow-term-group", (*COUNT, "--follow"), FIRST_BATCH, TERM),
        group=True,
        statuses=(0,),
    ),
    long(
        *(27, "lab-sql-int-group", ("lab", "run", "sql-on-streams")),
        *(("stderr", "part 2", 0.3), INT),
        group=True,
    ),
    long(
        *(100, "bench-stream-term", ("bench", "run", "stream")),
        *(("stderr", "warming up", 3.0), TERM),
    ),
]


class Command:
    """A command in a process group of its own, with a mark that all its processes inherit."""

    def __init__(self, arguments, folder: Path, environment) -> None:
        self._token = secrets.token_hex(8)
        self._files = {name: folder / name for name in ("stdout", "stderr")}
        with self._files["stdout"].open("wb") as out, self._files["stderr"].open("wb") as err:
            self.process = subprocess.Popen(
                [HEADRACE, *arguments],
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**environment, VARIABLE: self._token},
                start_new_session=True,
                # Else a test run in the background, where SIGINT is ignored, hands that down.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def text(self, stream: str) -> str:
        return self._files[stream].read_text()

    def wait_for(self, moment) -> None:
        stream, pattern, seconds = moment
        found = re.compile(pattern)
        eventually(lambda: found.search(self.text(stream)), f"{pattern!r}", SECONDS, every=0.01)
        time.sleep(seconds)

    def signal(self, number: int, *, group: bool) -> None:
        (os.killpg if group else os.kill)(self.process.pid, number)

    def processes(self):
        return processes_with(VARIABLE, self._token)


@pytest.fixture
def start(headrace, tmp_path):
    started = []

    def run(arguments):
        started.append(Command(arguments, tmp_path, headrace.environment))
        return started[-1]

    yield run
    for command in started:
        kill(command.processes())
        command.process.wait()


@pytest.fixture
def topic(make_topic, kafka_cluster):
    name = make_topic(3)
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        for event in some_events(EVENTS):
            producer.send(name, event.to_json(), headers=[("headrace-row", event.row)])
    return name


@pytest.mark.parametrize("case", CASES)
def test_a_signal_stops_a_spark_command_in_order(case, start, headrace, topic, tmp_path):
    if case.command[0] == "ingest":
        rows = 200 if case.moment == RESULT_IS_PRINTED else 300_000
        headrace("generate", "clickstream", "--rows", str(rows), "--out", "events.csv")
    command = start([word.replace("{topic}", topic) for word in case.command])
    command.wait_for(case.moment)
    command.signal(case.signal, group=case.group)
    status = command.process.wait(SECONDS_TO_STOP)
    said = command.text("stderr")
    assert status in case.expected, said
    assert not NOISE.search(said), said
    if status:
        assert said.endswith("\nstopped\n"), said
    eventually(lambda: not command.processes(), "nothing is left", SECONDS_TO_BE_GONE)
