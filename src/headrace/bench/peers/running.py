"""Runs a peer's program to its end, and leaves nothing behind."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.bench.peers.load import Load, PeerResult, parse_result
from headrace.clients import Admin
from headrace.errors import ArtifactError, BadInput, OperationFailed
from headrace.local.files import exclusive
from headrace.local.processes import find_cause
from headrace.model import Earliest, Latest, TopicPartition
from headrace.observe import Progress

SECONDS_TO_RUN = 300.0
READY = ".ready"

# What a peer may see of our environment: Pyrallel takes settings from variables like KAFKA_*, and
# Java from JAVA_TOOL_OPTIONS.
PASSED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR")


def require_records(load: Load) -> None:
    """Say at once that the topic has too few: the peers would wait for more."""
    admin = Admin(load.bootstrap)
    partitions = [
        TopicPartition(load.topic, partition.id) for partition in admin.topic(load.topic).partitions
    ]
    first, last = (admin.offsets(partitions, position) for position in (Earliest(), Latest()))
    found = sum(last.values()) - sum(first.values())
    if found < load.records:
        raise BadInput(
            f"topic {load.topic!r} has {found:,} records, {load.records:,} are to be handled",
            hint="send more, or ask for fewer",
        )


def run_peer(
    peer: str, command: Sequence[str], load: Load, *, folder: Path, limit: float = SECONDS_TO_RUN
) -> PeerResult:
    """Run the program in `folder`; it must print its result within `limit` seconds."""
    try:
        # A session of its own, so that it can be ended with all its children.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise OperationFailed(
            f"{peer} cannot be started: {error}",
            hint=f"remove {folder.parent} and run this again, it is made anew",
            peer=peer,
        ) from error
    output, complaints = _wait(peer, process, load, limit)
    if process.returncode:
        raise _failure(peer, process.returncode, complaints)
    return parse_result(peer, output, load)


def _wait(peer: str, process: "subprocess.Popen[str]", load: Load, limit: float) -> tuple[str, str]:
    try:
        return process.communicate(timeout=limit)
    except subprocess.TimeoutExpired as error:
        raise OperationFailed(
            f"{peer} did not handle {load.records:,} records within {limit:.0f} s",
            hint=f"see whether topic {load.topic!r} has as many, or allow more time",
            peer=peer,
        ) from error
    finally:
        _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    # Only while it has not been waited for is its number surely still its own.
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _failure(peer: str, status: int, complaints: str) -> OperationFailed:
    cause = find_cause(complaints.splitlines()) or "it left no message"
    if status < 0:
        name = signal.Signals(-status).name
        return OperationFailed(
            f"{peer} was killed by {name}: {cause}",
            hint="somebody ended it, or the machine has too little memory (see `dmesg`)",
            peer=peer,
            signal=name,
        )
    return OperationFailed(
        f"{peer} ended with status {status}: {cause}",
        hint="see that the brokers run (`headrace status`) and that the topic exists",
        peer=peer,
        status=status,
    )


def made_once(folder: Path, what: str, progress: Progress, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills; if it fails or is cut short, the next call begins anew."""
    if (folder / READY).exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(folder.parent / f".{folder.name}.lock", what, progress):
            if not (folder / READY).exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                (folder / READY).touch()
    except OSError as error:
        raise ArtifactError(
            f"{what} cannot be made in {folder}: {error.strerror or error}",
            hint="free some space or fix the permissions, or set HEADRACE_CACHE to another folder",
            path=str(folder),
        ) from error
    return folder


def run_to_make(command: Sequence[str], what: str, hint: str, seconds: float) -> None:
    """Run a command that prepares a peer; what it complains of becomes the error."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ArtifactError(f"{what} took more than {seconds:.0f} s", hint=hint) from error
    if done.returncode:
        cause = find_cause((done.stdout + done.stderr).splitlines()) or "it left no message"
        raise ArtifactError(f"{what} failed: {cause}", hint=hint)
