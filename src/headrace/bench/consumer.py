"""How fast are records handled, beside a bare loop and other parallel consumers?

All systems handle the same records of the same topics on the same broker, in turns, several
rounds, each in a process of its own and with commits on. The time is from the start of the first
record's handler to the end of the last one's. Ratios are taken within a round, and the median
round counts.
"""

import json
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from confluent_kafka import Consumer as Bare
from confluent_kafka import Message

from headrace.bench import cpu_work
from headrace.bench.measurement import Measurement
from headrace.bench.ours import HOT_KEY
from headrace.bench.peers import Load, java_parallel_consumer, pyrallel_consumer
from headrace.bench.rounds import median_ratio
from headrace.clients import Admin, Producer
from headrace.errors import OperationFailed
from headrace.local import LocalCluster
from headrace.observe import Progress
from headrace.parallel import App

QUESTION = "How fast are records handled, beside a bare loop and other parallel consumers?"
PARTITIONS = 5
ROUNDS = 3
BACKLOG = 1_000_000
CPU_RECORDS, CPU_ROUNDS = 2_000, 5
SECONDS_AT_MOST = 700.0
JAVA, PYRALLEL, BARE = "parallel-consumer (Java)", "Pyrallel-Consumer", "bare consume loop"
OURS = {"async": "headrace, async", "thread": "headrace, threads"}


@dataclass(frozen=True)
class Case:
    """A load, and which of our executors take it at which concurrency."""

    name: str
    topic: str
    records: int
    work_ms: float
    concurrency: int
    executors: tuple[str, ...]
    bare: bool = False

    def ideal(self) -> float | None:
        return self.records * self.work_ms / 1000 / self.concurrency if self.work_ms else None


CASES = (
    Case("10,000 x 20 ms, 100 at once", "waits", 10_000, 20, 100, ("async", "thread")),
    Case("10,000 x 20 ms, 1,000 at once", "waits", 10_000, 20, 1_000, ("async",)),
    Case("100,000 x 0 ms, 100 at once", "busy", 100_000, 0, 100, ("async", "thread"), bare=True),
    Case("100,000 x 1 ms, 1,000 at once", "busy", 100_000, 1, 1_000, ("async",)),
)


def measure(progress: Progress, *, peers: bool = False) -> Measurement:
    with LocalCluster(1, progress=progress) as cluster:
        _fill(cluster.bootstrap, progress)
        times = _rounds(cluster.bootstrap, progress, peers=peers)
        hot = _hot_key(cluster.bootstrap, progress)
        cpu = _processes(cluster.bootstrap, progress)
        memory = _memory(cluster.bootstrap, progress)
    rows = [
        {
            "case": case.name,
            "system": system,
            "seconds": round(median(found), 3),
            "per_second": round(case.records / median(found)),
        }
        for (case, system), found in times.items()
    ]
    return Measurement([*rows, *hot, *cpu, memory], _ratios(times, [*hot, *cpu, memory]))


# --- the records ---


def _fill(bootstrap: str, progress: Progress) -> None:
    progress.step("filling topics")
    value = b"x" * 100
    admin = Admin(bootstrap)
    dice = random.Random(5)
    zipf = [1 / rank for rank in range(1, 12_001)]
    ranks = dice.choices(range(12_000), zipf, k=10_000)
    cold = [f"k{number}".encode() for number in range(9_000)]
    mixed = [*cold, *[HOT_KEY] * 1_000]
    dice.shuffle(mixed)
    zipped = [HOT_KEY if rank == 0 else f"k{rank}".encode() for rank in ranks]
    for topic, keys in {
        "waits": [f"k{number}".encode() for number in range(10_000)],
        "busy": [f"k{number % 1_000}".encode() for number in range(100_000)],
        "cold": cold,
        "hot": mixed,
        "zipf": zipped,
        "zipf-cold": [key for key in zipped if key != HOT_KEY],
        "cpu": [f"k{number}".encode() for number in range(CPU_RECORDS)],
    }.items():
        admin.create_topic(topic, PARTITIONS, 1)
        with Producer(bootstrap, profile="throughput") as producer:
            producer.send_many(topic, [(key, value) for key in keys]).result()


# --- the systems ---


def _rounds(
    bootstrap: str, progress: Progress, *, peers: bool
) -> dict[tuple[Case, str], list[float]]:
    times: dict[tuple[Case, str], list[float]] = {}
    for case in CASES:
        for number in range(1, ROUNDS + 1):
            progress.step(f"{case.name}, round {number} of {ROUNDS}")
            for system, run in _systems(case, bootstrap, progress, peers=peers).items():
                times.setdefault((case, system), []).append(run())
    return times


def _systems(
    case: Case, bootstrap: str, progress: Progress, *, peers: bool
) -> dict[str, Callable[[], float]]:
    load = Load(bootstrap, case.topic, case.records, case.work_ms, case.concurrency)
    systems: dict[str, Callable[[], float]] = {
        OURS[executor]: lambda executor=executor: run_ours(load, executor)["seconds"]  # type: ignore[misc]
        for executor in case.executors
    }
    if case.bare:
        systems[BARE] = lambda: _bare_loop(load)
    if peers:
        systems[JAVA] = lambda: java_parallel_consumer(load, progress).seconds
        systems[f"{JAVA}, cold"] = lambda: (
            java_parallel_consumer(load, progress, warm_up=False, tuned=False).seconds
        )
        systems[PYRALLEL] = lambda: pyrallel_consumer(load, progress).seconds
    return systems


def run_ours(load: Load, executor: str) -> dict[str, Any]:
    """Our consumer in a process of its own."""
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "headrace.bench.ours"),
            *(load.bootstrap, load.topic, f"bench-{uuid.uuid4()}", str(load.records)),
            *(str(load.work_ms), str(load.concurrency), executor),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_AT_MOST,
        check=False,
    )
    if done.returncode != 0 or not done.stdout.strip():
        raise OperationFailed(
            f"our own consumer failed: {done.stderr.strip()[-300:]}", hint="run it again"
        )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if result["handled"] < load.records:
        raise OperationFailed(
            f"our own consumer handled {result['handled']:,} of {load.records:,} records",
            hint="run it again",
        )
    return result


def _bare_loop(load: Load) -> float:
    """What confluent-kafka itself can do: values read, nothing decided, nothing committed."""
    client = Bare(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": f"bench-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    client.subscribe([load.topic])
    while client.poll(1.0) is None:  # from the first record on, as for the others
        pass
    count, started = 1, time.perf_counter()
    while count < load.records:
        messages = client.consume(5_000, 0.05)
        count += sum(value is not None for value in map(Message.value, messages))
    seconds = time.perf_counter() - started
    client.close()
    return seconds


# --- other promises ---


def _hot_key(bootstrap: str, progress: Progress) -> list[dict[str, Any]]:
    """All other keys' records, with and without a key that has a tenth of them."""
    rows = []
    for case, without, with_hot, records in (
        ("a hot key, others even", "cold", "hot", 9_000),
        ("Zipf's law", "zipf-cold", "zipf", None),
    ):
        progress.step(case)
        count = records or _count(bootstrap, without)
        found: dict[str, list[float]] = {without: [], with_hot: []}
        for _ in range(ROUNDS):
            for topic, times in found.items():
                load = Load(bootstrap, topic, count, 10, 100)
                times.append(run_ours(load, "async-cold")["seconds"])
        rows += [
            {
                "case": f"{case}: the other keys",
                "system": "without it" if topic == without else "with it",
                "seconds": round(median(times), 3),
                "ratio": median_ratio(times, found[without], 3),
            }
            for topic, times in found.items()
        ]
    return rows


def _count(bootstrap: str, topic: str) -> int:
    from headrace.clients import Reader

    with Reader(topic, connection=bootstrap) as reader:
        return sum(len(batch) for batch in reader.batches())


def _processes(bootstrap: str, progress: Progress) -> list[dict[str, Any]]:
    """Work for the processor: a plain loop against two processes."""
    progress.step("CPU work on processes")
    value = b"x" * 100
    serial, parallel = [], []
    for _ in range(CPU_ROUNDS):
        started = time.perf_counter()
        for _ in range(CPU_RECORDS):
            cpu_work.handle(value)
        serial.append(time.perf_counter() - started)
        parallel.append(_cpu_on_processes(bootstrap, CPU_RECORDS))
    case = f"{CPU_RECORDS:,} x 4 ms of CPU"
    return [
        {"case": case, "system": "serial", "seconds": round(median(serial), 3)},
        {
            "case": case,
            "system": "headrace, 2 processes",
            "seconds": round(median(parallel), 3),
            "ratio": median_ratio(serial, parallel, 3),
        },
    ]


def _cpu_on_processes(bootstrap: str, records: int) -> float:
    """From the first finished record on, which is when the processes have started."""
    app = App(bootstrap)
    declare = app.consumer("cpu", group=f"b-{uuid.uuid4()}", executor="process", concurrency=2)
    declare(cpu_work.handle)
    with app.running() as running:
        while not (first := running.status()[0].handled):
            time.sleep(0.02)
        started = time.perf_counter()
        while running.status()[0].handled < records:
            time.sleep(0.05)  # looking costs processor time, too
        seconds = time.perf_counter() - started
    return seconds * records / (records - first)


def _memory(bootstrap: str, progress: Progress) -> dict[str, Any]:
    progress.step(f"a backlog of {BACKLOG:,} records x 5 ms")
    Admin(bootstrap).create_topic("backlog", PARTITIONS, 1)
    value = b"x" * 100
    with Producer(bootstrap, profile="throughput") as producer:
        pairs = ((f"k{n % 10_000}".encode(), value) for n in range(BACKLOG))
        producer.send_many("backlog", pairs).result()
    result = run_ours(Load(bootstrap, "backlog", BACKLOG, 5, 100), "async")
    return {
        "case": f"{BACKLOG:,} x 5 ms, 100 at once",
        "system": OURS["async"],
        "seconds": round(result["seconds"], 1),
        "memory_grown_mb": result["grown_mb"],
    }


# --- ratios ---


def _ratios(
    times: dict[tuple[Case, str], list[float]], others: Sequence[dict[str, Any]]
) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for case in CASES:
        found = {system: times[case, system] for c, system in times if c is case}
        for system in (OURS[executor] for executor in case.executors):
            if ideal := case.ideal():
                ratios[f"{case.name}: {system}, times the ideal"] = round(
                    median(found[system]) / ideal, 3
                )
            for peer in (name for name in found if name not in OURS.values()):
                ratios[f"{case.name}: {system}, times the rate of {peer}"] = median_ratio(
                    found[peer], found[system], 3
                )
    for row in others:
        if "ratio" in row and row["system"] not in ("without it", "serial"):
            ratios[f"{row['case']}: {row['system']}"] = row["ratio"]
    return ratios
