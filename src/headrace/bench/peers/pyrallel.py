"""Pyrallel-Consumer from PyPI, in a virtual environment of its own in the cache.

It needs Python 3.12 or later, which need not be the Python that runs headrace. It gets the same
confluent-kafka as ours.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import version
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
from headrace.errors import OperationFailed
from headrace.observe import Progress

NAME = "Pyrallel-Consumer 1.0.0"
REQUIREMENT = "pyrallel-consumer==1.0.0"
PROGRAM = "pyrallel_program.py"
SECONDS_TO_INSTALL = 600
VERSIONS = ("3.13", "3.12")  # those it says it is for, best first
INSTALL_HINT = (
    "check the network and pip's settings (PIP_INDEX_URL, HTTPS_PROXY, SSL_CERT_FILE), "
    "then run this again"
)


def pyrallel_consumer(
    load: Load, progress: Progress, *, tuned: bool = True, limit: float = SECONDS_TO_RUN
) -> PeerResult:
    """Measure its asyncio mode; the first time it is installed.

    `tuned`: 10,000 records a poll and 100,000 in its queues, instead of 1,000 and 5,000.
    """
    require_records(load)
    environment = _environment(Places.from_environment().cache, progress)
    with resources.as_file(resources.files("headrace.bench.peers").joinpath(PROGRAM)) as program:
        command = [str(_python_in(environment)), "-I", str(program), *load.arguments(tuned)]
        # It reads a file `.env` of the folder it runs in: there is none in this one.
        return run_peer(NAME, command, load, folder=environment, limit=limit)


def _environment(cache: Path, progress: Progress) -> Path:
    python = find_python()
    requirements = [REQUIREMENT, f"confluent-kafka=={version('confluent-kafka')}"]
    digest = hashlib.sha256("\n".join([str(python), *requirements]).encode()).hexdigest()[:16]

    def install_into(folder: Path) -> None:
        progress.step(f"installing {NAME}")
        run_to_make(
            [str(python), "-m", "venv", str(folder)],
            f"making an environment with {python}",
            "this Python lacks venv or pip: install them, or another Python",
            SECONDS_TO_INSTALL,
        )
        run_to_make(
            [str(_python_in(folder)), "-m", "pip", "install", "--quiet", *requirements],
            f"installing {NAME}",
            INSTALL_HINT,
            SECONDS_TO_INSTALL,
        )

    return made_once(cache / "peers" / f"pyrallel-{digest}", NAME, progress, install_into)


def _python_in(environment: Path) -> Path:
    return environment / "bin" / "python"


def find_python() -> Path:
    """A Python that Pyrallel-Consumer runs on: this one, or another of this machine."""
    for candidate in _pythons():
        if _works(candidate):
            return candidate
    raise OperationFailed(
        f"{NAME} needs Python {VERSIONS[-1]} or later, and there is none",
        hint=f"install Python {VERSIONS[0]} so that `python{VERSIONS[0]}` is on the PATH",
    )


def _pythons() -> Iterator[Path]:
    if sys.version_info >= (3, 12):
        yield Path(sys.executable)
    for number in VERSIONS:
        if found := shutil.which(f"python{number}"):
            yield Path(found)
    # Version managers keep one folder beside the other.
    for number in VERSIONS:
        yield from sorted(Path(sys.base_prefix).parent.glob(f"*/bin/python{number}"))


def _works(python: Path) -> bool:
    """Run it: what version managers put on the PATH may stand for no Python at all."""
    try:
        return not subprocess.run(
            [python, "-c", "import venv, ensurepip"], capture_output=True, timeout=30, check=False
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
