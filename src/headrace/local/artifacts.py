"""Jars and archives by Maven coordinates: fetched in parallel, verified, kept in a cache.

A lock file names each artifact with its SHA-256 and size. A file enters the cache only whole and
verified (written beside its place, then renamed), so a crash or a full disk never leaves half a
jar behind, and two fetches at once do not disturb each other. What is in the cache needs no
network.

`HEADRACE_MAVEN_REPOSITORY` names another repository: a mirror's address, or a folder laid out
like one.
"""

import base64
import contextlib
import errno
import hashlib
import os
import shutil
import ssl
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import IO

from headrace.errors import ArtifactError, ChecksumMismatch, ConfigError, HeadraceError, NoRoom
from headrace.observe import Progress, Silent

REPOSITORY_VARIABLE = "HEADRACE_MAVEN_REPOSITORY"
PARALLEL_DOWNLOADS = 8
ATTEMPTS = 3
CHUNK = 1 << 18
ROOM_TO_SPARE = 64 << 20


@dataclass(frozen=True)
class Artifact:
    """One line of a lock file: `group:name:version[:classifier][@extension] sha256 bytes`."""

    group: str
    name: str
    version: str
    classifier: str
    extension: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.extension}"

    @property
    def path(self) -> str:
        """Where a Maven repository keeps it."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file_name}"


def parse_lock(text: str) -> tuple[Artifact, ...]:
    """The artifacts of a lock file, in its order."""
    return tuple(
        _parse_line(line) for line in text.splitlines() if line.strip() and not line.startswith("#")
    )


def _parse_line(line: str) -> Artifact:
    coordinates, sha256, size = line.split()
    rest, _, extension = coordinates.partition("@")
    group, name, version, *classifier = rest.split(":")
    return Artifact(
        group, name, version, "".join(classifier), extension or "jar", sha256, int(size)
    )


def read_lock(name: str) -> tuple[Artifact, ...]:
    """A lock file that ships with the package: `kafka` or `registry`."""
    return parse_lock(
        resources.files("headrace.local").joinpath("locks", f"{name}.lock").read_text("utf-8")
    )


def lock_digest(artifacts: Iterable[Artifact]) -> str:
    """A short name for exactly this set of artifacts."""
    digest = hashlib.sha256()
    for artifact in artifacts:
        digest.update(artifact.sha256.encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Repository:
    """Where artifacts come from. `named` is how messages speak of it."""

    address: str
    named: str
    authorization: str | None = None

    @classmethod
    def from_environment(cls) -> "Repository":
        given = os.environ.get(REPOSITORY_VARIABLE)
        if not given:
            # Only here is the default repository's address needed, and jgo takes 0.3 s to import.
            from jgo.constants import MAVEN_CENTRAL_URL

            return cls(MAVEN_CENTRAL_URL, "the default Maven repository")
        if "://" not in given:
            folder = Path(given).expanduser().absolute()
            return cls(folder.as_uri(), f"{folder} ({REPOSITORY_VARIABLE})")
        return cls._from_address(given)

    @classmethod
    def _from_address(cls, given: str) -> "Repository":
        parts = urllib.parse.urlsplit(given)
        if parts.scheme not in ("http", "https", "file"):
            raise ConfigError(
                f"{REPOSITORY_VARIABLE} has the scheme {parts.scheme!r}",
                hint="use a folder, or an http, https or file address",
            )
        if "@" in parts.path + parts.query + parts.fragment:
            # Not shown: what stands before the @ may be half a password.
            raise ConfigError(
                f"{REPOSITORY_VARIABLE} has an @ after the host's name",
                hint="in a password write / as %2F, ? as %3F and # as %23",
            )
        host = parts.netloc.rpartition("@")[2]
        address = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        authorization = None
        if parts.username is not None:
            user = urllib.parse.unquote(parts.username)
            password = urllib.parse.unquote(parts.password or "")
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            authorization = f"Basic {token}"
        # Messages show the address without user and password.
        return cls(address, f"{address} ({REPOSITORY_VARIABLE})", authorization)

    def request(self, artifact: Artifact) -> urllib.request.Request:
        request = urllib.request.Request(f"{self.address}/{artifact.path}")
        if self.authorization:
            request.add_unredirected_header("Authorization", self.authorization)
        return request


class Store:
    """The cache of artifacts under one folder."""

    def __init__(self, cache: Path, *, progress: Progress | None = None) -> None:
        self._folder = cache / "maven"
        self._unpacked = cache / "unpacked"
        self._progress: Progress = progress or Silent()

    def path(self, artifact: Artifact) -> Path:
        return self._folder / artifact.path

    def has(self, artifact: Artifact) -> bool:
        """Present and exactly the bytes the lock names."""
        path = self.path(artifact)
        try:
            return path.stat().st_size == artifact.size and _sha256(path) == artifact.sha256
        except OSError:
            return False

    def missing(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            present = list(pool.map(self.has, artifacts))
        return [artifact for artifact, there in zip(artifacts, present, strict=True) if not there]

    def fetch(self, artifacts: Sequence[Artifact], what: str) -> list[Path]:
        """Paths of all artifacts, in order; what is missing or damaged is fetched first."""
        missing = self.missing(artifacts)
        for artifact in missing:
            if self.path(artifact).exists():
                self._progress.warn(
                    f"{artifact.file_name} in the cache is damaged, fetching it anew"
                )
        if missing:
            self._download(missing, what)
        return [self.path(artifact) for artifact in artifacts]

    def unpack(self, artifact: Artifact) -> Path:
        """The folder with the content of a tar archive, which is fetched if need be."""
        folder = self._unpacked_folder(artifact)
        if folder.is_dir():
            return folder
        (archive,) = self.fetch([artifact], artifact.name)
        self._progress.step(f"unpacking {artifact.file_name}")
        self._unpacked.mkdir(parents=True, exist_ok=True)
        require_room(self._unpacked, artifact.size * 2)
        beside = Path(tempfile.mkdtemp(dir=self._unpacked, prefix=".unpacking-"))
        try:
            with tarfile.open(archive) as tar:
                _extract(tar, beside)
            beside.rename(folder)
        except OSError as error:
            if not folder.is_dir():  # somebody else may have finished first
                raise _cannot_store(artifact, self._unpacked, error) from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        # The folder serves from now on, and the lock can bring the archive again.
        archive.unlink(missing_ok=True)
        return folder

    def is_unpacked(self, artifact: Artifact) -> bool:
        return self._unpacked_folder(artifact).is_dir()

    def _unpacked_folder(self, artifact: Artifact) -> Path:
        return self._unpacked / f"{artifact.name}-{artifact.version}-{artifact.sha256[:12]}"

    def _download(self, missing: Sequence[Artifact], what: str) -> None:
        self._make_folder()
        total = sum(artifact.size for artifact in missing)
        require_room(self._folder, total)
        download = _Download(Repository.from_environment(), self._progress)
        self._progress.begin(f"fetching {what}", total)
        try:
            with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
                futures = [
                    pool.submit(download.run, artifact, self.path(artifact)) for artifact in missing
                ]
                try:
                    for future in futures:
                        future.result()
                except BaseException:
                    download.stop.set()
                    raise
        finally:
            self._progress.end()

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArtifactError(
                f"the cache folder {self._folder} cannot be made: {error.strerror}",
                hint="set HEADRACE_CACHE to a folder you can write to",
                path=str(self._folder),
            ) from error


class _Download:
    """Brings artifacts from one repository; one that fails stops the others."""

    def __init__(self, repository: Repository, progress: Progress) -> None:
        self.stop = threading.Event()
        self._repository = repository
        self._progress = progress
        self._tls = _tls_context()

    def run(self, artifact: Artifact, target: Path) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            if self.stop.is_set():
                return None
            try:
                return self._once(artifact, target)
            except HeadraceError:
                raise
            except (OSError, HTTPException) as error:
                if attempt == ATTEMPTS or not _worth_another_attempt(error):
                    raise self._failure(artifact, error) from error
                time.sleep(0.5 * attempt)
        return None

    def _once(self, artifact: Artifact, target: Path) -> None:
        request = self._repository.request(artifact)
        with (
            urllib.request.urlopen(request, timeout=30, context=self._tls) as response,
            _whole_or_nothing(artifact, target) as file,
        ):
            digest = self._copy(artifact, response, file, target.parent)
            if digest != artifact.sha256:
                raise _mismatch(artifact, digest, self._repository)

    def _copy(self, artifact: Artifact, response: IO[bytes], file: IO[bytes], folder: Path) -> str:
        digest = hashlib.sha256()
        done = 0
        try:
            while chunk := response.read(CHUNK):
                if self.stop.is_set():
                    raise ArtifactError(f"fetching {artifact.file_name} was stopped")
                digest.update(chunk)
                try:
                    file.write(chunk)
                except OSError as error:
                    raise _cannot_store(artifact, folder, error) from error
                done += len(chunk)
                self._progress.advance(len(chunk))
            if getattr(response, "length", None):  # fewer bytes than announced, and no complaint
                raise HTTPException(f"the connection was cut after {done:,} bytes")
        except BaseException:
            self._progress.advance(-done)
            raise
        return digest.hexdigest()

    def _failure(self, artifact: Artifact, error: Exception) -> ArtifactError:
        if isinstance(error, urllib.error.HTTPError):
            reason = f"it answered {error.code} {error.reason}"
        else:
            reason = str(getattr(error, "reason", None) or error)
        return ArtifactError(
            f"{artifact.file_name} could not be fetched from {self._repository.named}: {reason}",
            hint=(
                "check the network and proxy (HTTPS_PROXY, SSL_CERT_FILE), or name a mirror in "
                f"{REPOSITORY_VARIABLE}; what is already in the cache is kept"
            ),
            artifact=artifact.path,
        )


@contextlib.contextmanager
def _whole_or_nothing(artifact: Artifact, target: Path) -> Iterator[IO[bytes]]:
    """A file beside the target, which becomes the target only if the block succeeds."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{artifact.file_name}-")
    except OSError as error:
        raise _cannot_store(artifact, target.parent, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        Path(name).rename(target)
    finally:
        Path(name).unlink(missing_ok=True)


def require_room(folder: Path, size: int) -> None:
    """Raise NoRoom unless the disk under `folder` can take `size` bytes and some to spare."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if free < size + ROOM_TO_SPARE:
        raise NoRoom(
            f"{existing} has {free / 1e6:,.0f} MB free, "
            f"{(size + ROOM_TO_SPARE) / 1e6:,.0f} MB are needed",
            hint="free some space, or set HEADRACE_HOME and HEADRACE_CACHE to another disk",
            path=str(existing),
            free=free,
            needed=size + ROOM_TO_SPARE,
        )


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        import certifi  # some Pythons (macOS installers) come without any trust store

        context.load_verify_locations(certifi.where())
    return context


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _worth_another_attempt(error: Exception) -> bool:
    return not isinstance(error, urllib.error.HTTPError) or error.code >= 500 or error.code == 429


def _mismatch(artifact: Artifact, digest: str, repository: Repository) -> ChecksumMismatch:
    return ChecksumMismatch(
        f"{artifact.file_name} from {repository.named} has SHA-256 {digest[:16]}..., "
        f"the lock says {artifact.sha256[:16]}...",
        hint="the mirror or a proxy altered the file: fetch it from another repository with "
        f"{REPOSITORY_VARIABLE}",
        artifact=artifact.path,
        expected=artifact.sha256,
        actual=digest,
    )


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
        return
    # Python 3.11.0 to 3.11.3 knows no filters. What comes here has the checksum of the lock.
    for name in map(PurePosixPath, tar.getnames()):
        if name.is_absolute() or ".." in name.parts:
            raise tarfile.ExtractError(f"{name} would be outside {folder}")
    tar.extractall(folder)


def _cannot_store(artifact: Artifact, folder: Path, error: OSError) -> ArtifactError:
    kind = NoRoom if error.errno in (errno.ENOSPC, errno.EDQUOT) else ArtifactError
    return kind(
        f"{artifact.file_name} cannot be stored in {folder}: {error.strerror or error}",
        hint="free some space or fix the permissions, or set HEADRACE_CACHE to another folder",
        path=str(folder),
    )
