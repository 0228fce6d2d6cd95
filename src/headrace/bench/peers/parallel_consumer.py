"""Confluent's parallel consumer for Java, on the bundled Java.

That Java has no compiler, so our program is compiled with Eclipse's, which is a jar like the
others.
"""

import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from headrace.bench.peers.load import Load, PeerResult
from headrace.bench.peers.running import (
    SECONDS_TO_RUN,
    made_once,
    require_records,
    run_peer,
    run_to_make,
)
from headrace.config import Places
from headrace.local.artifacts import Store, lock_digest, read_lock
from headrace.local.java import Java, bundled_java
from headrace.observe import Progress

NAME = "Confluent parallel-consumer 0.5.3.3 (Java)"
LOCK = "peers"
MAIN = "ParallelConsumerPeer"
COMPILER_JAR = "ecj-"
SECONDS_TO_COMPILE = 120


def java_parallel_consumer(
    load: Load,
    progress: Progress,
    *,
    tuned: bool = True,
    warm_up: bool = True,
    limit: float = SECONDS_TO_RUN,
) -> PeerResult:
    """Measure it; the first time its jars are fetched and our program is compiled.

    `tuned`: 5,000 records a poll and a buffer of 20,000, instead of 500 and twice the
    concurrency. `warm_up`: it handles the whole load once before, in the same Java.
    """
    require_records(load)
    cache = Places.from_environment().cache
    artifacts = read_lock(LOCK)
    jars = Store(cache, progress=progress).fetch(artifacts, NAME)
    java = bundled_java()
    classes = _compiled(cache, java, jars, lock_digest(artifacts), progress)
    command = _command(java, [*jars, classes], load.arguments(tuned, warm_up))
    return run_peer(NAME, command, load, folder=classes, limit=limit)


def _command(java: Java, class_path: Sequence[Path], arguments: Sequence[str]) -> list[str]:
    return [
        str(java.executable),
        "-XX:-UsePerfData",
        "-cp",
        os.pathsep.join(map(str, class_path)),
        MAIN,
        *arguments,
    ]


def _compiled(
    cache: Path, java: Java, jars: Sequence[Path], jars_digest: str, progress: Progress
) -> Path:
    """The folder with our program's classes, named after all that they are made of."""
    source = resources.files("headrace.bench.peers").joinpath(f"{MAIN}.java").read_bytes()
    digest = hashlib.sha256(source + jars_digest.encode() + java.version.encode()).hexdigest()[:16]

    def compile_into(folder: Path) -> None:
        progress.step(f"compiling the program for {NAME}")
        file = folder / f"{MAIN}.java"
        file.write_bytes(source)
        run_to_make(
            _compile_command(java, jars, file),
            f"compiling {file.name}",
            f"remove {cache / 'peers'} and run this again",
            SECONDS_TO_COMPILE,
        )

    return made_once(cache / "peers" / f"java-{digest}", NAME, progress, compile_into)


def _compile_command(java: Java, jars: Sequence[Path], source: Path) -> list[str]:
    compiler = next(jar for jar in jars if jar.name.startswith(COMPILER_JAR))
    # The release is the Java's own: it has no data about older ones.
    return [
        *(str(java.executable), "-jar", str(compiler), "--release", str(java.major), "-nowarn"),
        *("-cp", os.pathsep.join(map(str, jars)), "-d", str(source.parent), str(source)),
    ]
