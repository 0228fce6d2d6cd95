"""Which benchmarks there are, and the shape of what they measure."""

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import psutil

from headrace.bench import consumer, ingest, producer, realtime, startup, stream
from headrace.bench.measurement import Measurement
from headrace.errors import BadInput
from headrace.local.spec import KAFKA_VERSION
from headrace.observe import Progress

BENCHMARKS: dict[str, tuple[str, Callable[[Progress], Measurement]]] = {
    "startup": (startup.QUESTION, startup.measure),
    "producer": (producer.QUESTION, producer.measure),
    "ingest": (ingest.QUESTION, ingest.measure),
    "consumer": (consumer.QUESTION, consumer.measure),
    "stream": (stream.QUESTION, stream.measure),
    "realtime": (realtime.QUESTION, realtime.measure),
}
# Those whose peers must be fetched; the others run beside their peers as they are.
WITH_PEERS: dict[str, Callable[[Progress], Measurement]] = {
    "consumer": partial(consumer.measure, peers=True),
}


@dataclass(frozen=True)
class BenchResult:
    """A benchmark's outcome: `rows` as measured, `ratios` between rows of the same run."""

    name: str
    environment: dict[str, Any]
    rows: list[dict[str, Any]]
    ratios: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_benchmark(name: str, progress: Progress, *, peers: bool = False) -> BenchResult:
    if name not in BENCHMARKS:
        raise BadInput(f"there is no benchmark {name!r}", hint=f"there are {', '.join(BENCHMARKS)}")
    if peers and name not in WITH_PEERS:
        raise BadInput(
            f"benchmark {name!r} has no peers to be fetched", hint="run it without --peers"
        )
    measured = WITH_PEERS[name](progress) if peers else BENCHMARKS[name][1](progress)
    return BenchResult(name, _environment(), measured.rows, measured.ratios)


def _environment() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
    }
