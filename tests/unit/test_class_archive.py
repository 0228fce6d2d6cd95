"""Faster starts are a gift: without them, a start is slower but never fails."""

import stat
from pathlib import Path

import pytest

from headrace.local.class_archive import ClassArchive
from headrace.local.java import Java

WRITES_THE_ARCHIVE = """#!/bin/sh
for argument do
    case "$argument" in
        -XX:SharedClassListFile=*) cp "${argument#*=}" "$(dirname "$0")/list" ;;
        -XX:SharedArchiveFile=*) echo archive > "${argument#*=}" ;;
    esac
done
"""


def archive_with(tmp_path: Path, script: str) -> ClassArchive:
    executable = tmp_path / "jdk" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(script)
    executable.chmod(stat.S_IRWXU)
    java = Java(tmp_path / "jdk", "21.0.8", "fake")
    return ClassArchive(tmp_path / "cache", java, [Path("a.jar")], "abc")


def note_classes(archive: ClassArchive, content: bytes) -> Path:
    """What the first broker does on the option it is given."""
    (option,) = archive.learning_options
    path = Path(option.partition("=")[2])
    path.write_bytes(content)
    return path


def leftovers(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache" / "class-archives").iterdir()]


def test_the_archive_is_made_from_the_noted_classes_and_used_from_then_on(tmp_path, progress):
    archive = archive_with(tmp_path, WRITES_THE_ARCHIVE)
    assert archive.options == []
    note_classes(archive, b"java/lang/Object\njava/lang/Str")
    archive.write(progress)
    assert archive.exists
    assert archive.learning_options == []
    assert archive.options[1] == "-Xshare:auto"
    assert leftovers(tmp_path) == [Path(archive.options[0].partition("=")[2]).name]
    assert progress.warnings == []


def test_the_last_cut_line_of_the_list_is_left_out(tmp_path, progress):
    archive = archive_with(tmp_path, WRITES_THE_ARCHIVE)
    note_classes(archive, b"java/lang/Object\n\xc3")  # cut in the middle of a character
    archive.write(progress)
    assert (tmp_path / "jdk" / "bin" / "list").read_bytes() == b"java/lang/Object\n"
    assert progress.warnings == []


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/nowhere/sh\n", "#!/bin/sh\n"])
def test_a_java_that_fails_is_a_warning_and_no_error(tmp_path, progress, script):
    archive = archive_with(tmp_path, script)
    note_classes(archive, b"java/lang/Object\n")
    archive.write(progress)
    assert not archive.exists
    assert archive.options == []
    assert len(progress.warnings) == 1
    assert "starts stay slower" in progress.warnings[0]
    assert leftovers(tmp_path) == []


def test_a_java_that_hangs_is_a_warning_and_no_error(tmp_path, progress, monkeypatch):
    monkeypatch.setattr("headrace.local.class_archive.SECONDS_TO_WRITE", 0.05)
    archive = archive_with(tmp_path, "#!/bin/sh\nexec sleep 60\n")
    note_classes(archive, b"java/lang/Object\n")
    archive.write(progress)
    assert not archive.exists
    assert len(progress.warnings) == 1


def test_the_users_java_settings_do_not_reach_it(tmp_path, progress, monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseG1GC")
    refuses = '#!/bin/sh\n[ -z "$JDK_JAVA_OPTIONS" ] || exit 1\n'
    archive = archive_with(tmp_path, WRITES_THE_ARCHIVE.replace("#!/bin/sh\n", refuses))
    note_classes(archive, b"java/lang/Object\n")
    archive.write(progress)
    assert archive.exists


def test_without_noted_classes_nothing_is_done(tmp_path, progress):
    archive = archive_with(tmp_path, "#!/bin/sh\nexit 1\n")
    archive.write(progress)
    assert (progress.steps, progress.warnings) == ([], [])


def test_a_cache_that_cannot_be_written_to_does_not_stop_a_start(tmp_path, progress):
    archive = archive_with(tmp_path, WRITES_THE_ARCHIVE)
    (tmp_path / "cache").write_text("a file where a folder is expected")
    assert archive.learning_options == []
    assert archive.options == []
    archive.write(progress)
    assert not archive.exists


def test_an_archive_belongs_to_one_set_of_jars_and_one_java(tmp_path, progress):
    archive = archive_with(tmp_path, WRITES_THE_ARCHIVE)
    note_classes(archive, b"java/lang/Object\n")
    archive.write(progress)
    for version, digest in (("21.0.9", "abc"), ("21.0.8", "abd")):
        java = Java(tmp_path / "jdk", version, "fake")
        assert not ClassArchive(tmp_path / "cache", java, [Path("a.jar")], digest).exists
