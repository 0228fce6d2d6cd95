"""Java's class-data sharing: brokers start in half the time, from an archive of parsed classes.

The archive belongs to one set of jars and one Java version. The first broker on a machine writes
down which classes it loads; once it serves, they are parsed into the archive (some seconds, once).
Without an archive, or with one that does not fit, Java just starts slower: nothing here can make a
start fail.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from headrace.local.java import Java, java_environment
from headrace.observe import Progress

SECONDS_TO_WRITE = 120


class ClassArchive:
    """The archive for one class path on one Java."""

    def __init__(self, cache: Path, java: Java, class_path: Sequence[Path], digest: str) -> None:
        self._java = java
        self._class_path = os.pathsep.join(map(str, class_path))
        stem = f"kafka-{digest}-java-{java.version}"
        self._archive = cache / "class-archives" / f"{stem}.jsa"
        self._classes = cache / "class-archives" / f"{stem}.classes"

    @property
    def exists(self) -> bool:
        return self._archive.is_file()

    @property
    def options(self) -> list[str]:
        """For every start: use the archive if it is there and fits."""
        return [f"-XX:SharedArchiveFile={self._archive}", "-Xshare:auto"] if self.exists else []

    @property
    def learning_options(self) -> list[str]:
        """For one broker, while there is no archive: note the classes it loads."""
        if self.exists:
            return []
        try:
            self._archive.parent.mkdir(parents=True, exist_ok=True)
        except OSError:  # a cache that only others may write to
            return []
        return [f"-XX:DumpLoadedClassList={self._classes}"]

    def write(self, progress: Progress) -> None:
        """Make the archive from the noted classes, if that is still to be done."""
        if self.exists or not self._classes.is_file():
            return
        progress.step("preparing faster starts (once on this machine)")
        beside = self._archive.with_suffix(f".{os.getpid()}")
        try:
            # The broker still runs, so the last line of its list may be cut.
            self._classes.write_bytes(self._classes.read_bytes().rpartition(b"\n")[0] + b"\n")
            subprocess.run(
                [
                    str(self._java.executable),
                    "-Xshare:dump",
                    "-Xlog:disable",
                    "-XX:+UseSerialGC",
                    f"-XX:SharedClassListFile={self._classes}",
                    f"-XX:SharedArchiveFile={beside}",
                    "-cp",
                    self._class_path,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS_TO_WRITE,
                check=True,
                env=java_environment(),
            )
            beside.rename(self._archive)
        except (OSError, subprocess.SubprocessError) as error:
            progress.warn(f"starts stay slower, the class archive was not written: {error}")
        finally:
            beside.unlink(missing_ok=True)
            self._classes.unlink(missing_ok=True)
