"""How long does a cluster take to start and stop, and how much memory does it hold?

Each start is from nothing to the first record written to and read from every broker. `cold` has
no class archive yet, `warm` has; both have the jars. `fetch` fills an empty cache.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from headrace.bench.measurement import Measurement
from headrace.clients import Producer
from headrace.clients.admin import Admin
from headrace.config import Places
from headrace.local import LocalCluster
from headrace.local.artifacts import Store, read_lock
from headrace.observe import Progress

QUESTION = "How long does a cluster take to start and stop, and how much memory does it hold?"
LOAD_RECORDS = 300_000


def measure(progress: Progress) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        places = Places(home=Path(folder) / "home", cache=Path(folder) / "cache")
        rows = [_fetch(places, progress)]
        cold = _cluster(places, progress, "1 broker, cold", 1, again=False)
        warm = _cluster(places, progress, "1 broker, warm", 1, again=True)
        three = _cluster(places, progress, "3 brokers, warm", 3, again=True)
        rows += [cold, warm, three]
    ratios = {"cold / warm, 1 broker": round(cold["up_seconds"] / warm["up_seconds"], 2)}
    return Measurement(rows, ratios)


def _fetch(places: Places, progress: Progress) -> dict[str, Any]:
    artifacts = read_lock("kafka")
    started = time.monotonic()
    Store(places.cache, progress=progress).fetch(artifacts, "Apache Kafka")
    seconds = time.monotonic() - started
    megabytes = sum(artifact.size for artifact in artifacts) / 1e6
    return _row("fetch", up_seconds=seconds, megabytes=megabytes)


def _cluster(
    places: Places, progress: Progress, case: str, brokers: int, *, again: bool
) -> dict[str, Any]:
    cluster = LocalCluster(brokers, name=f"bench-{brokers}", places=places, progress=progress)
    started = time.monotonic()
    cluster.up(fresh=True)
    up_seconds = time.monotonic() - started
    idle = _memory(cluster)
    _load(cluster, brokers)
    loaded = _memory(cluster)
    restart_seconds = None
    if again:
        cluster.down()
        started = time.monotonic()
        cluster.up()
        restart_seconds = time.monotonic() - started
    started = time.monotonic()
    cluster.down(wipe=True)
    return _row(
        case,
        up_seconds=up_seconds,
        restart_seconds=restart_seconds,
        down_seconds=time.monotonic() - started,
        memory_idle_mb=idle,
        memory_loaded_mb=loaded,
    )


def _load(cluster: LocalCluster, brokers: int) -> None:
    """Some work, so that heaps have a reason to grow."""
    Admin(cluster.bootstrap).create_topic("load", 5, min(3, brokers))
    with Producer(cluster.bootstrap) as producer:
        for number in range(LOAD_RECORDS):
            producer.send("load", b"x" * 250, key=str(number))


def _memory(cluster: LocalCluster) -> float:
    return sum(broker.memory or 0 for broker in cluster.status().brokers) / 1e6


def _row(case: str, **figures: float | None) -> dict[str, Any]:
    rounded = {name: None if v is None else round(v, 2) for name, v in figures.items()}
    return {"case": case, "system": "headrace", **rounded}
