"""Peers of the parallel consumer: what is asked of them, what they answer, how they fail."""

import json
import os
import re
import stat
import sys
import time
from importlib import resources
from pathlib import Path

import psutil
import pytest

from headrace.bench.peers import Load, PeerResult, parallel_consumer, pyrallel
from headrace.bench.peers.load import parse_result
from headrace.bench.peers.running import READY, made_once, run_peer, run_to_make
from headrace.errors import ArtifactError, BadInput, HeadraceError, OperationFailed
from headrace.local.artifacts import read_lock
from headrace.local.java import Java
from support.waiting import eventually

LOAD = Load("127.0.0.1:9092", "orders", records=10, work_ms=0.5, concurrency=4)
JAVA = Java(Path("/java"), "21.0.8", "test")
GOOD = {"seconds": 1.5, "handled": 10, "duplicates": 0}


def run(code: str, tmp_path: Path, limit: float = 30) -> PeerResult:
    return run_peer("a peer", [sys.executable, "-c", code], LOAD, folder=tmp_path, limit=limit)


def say(**changes: object) -> str:
    return json.dumps(GOOD | changes)


# --- the load ---


def test_both_programs_get_the_load_and_the_flags_as_arguments():
    bootstrap, topic, _group, *rest = LOAD.arguments(True, False)
    assert (bootstrap, topic) == ("127.0.0.1:9092", "orders")
    assert rest == ["10", "0.5", "4", "key", "yes", "no"]


def test_each_run_has_a_group_of_its_own():
    assert LOAD.arguments()[2] != LOAD.arguments()[2]


@pytest.mark.parametrize("change", [{"records": 0}, {"concurrency": 0}, {"work_ms": -1}])
def test_an_impossible_load_is_refused(change):
    with pytest.raises(BadInput, match="no such load") as caught:
        Load(**(vars(LOAD) | change))
    assert caught.value.hint


# --- what they print ---


def test_the_result_is_the_last_line_printed():
    printed = f"a library says hello\n{say()}\n\n"
    assert parse_result("a peer", printed, LOAD) == PeerResult("a peer", 1.5, 10, 0)


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "\n",
        "hello",
        "[]",
        "null",
        "3",
        "{}",
        say(seconds=None),
        say(seconds="soon"),
        say(seconds=0),
        say(seconds=-1),
        say(handled=[]),
        say(handled=float("inf")),
        '{"seconds": NaN, "handled": 10, "duplicates": 0}',
        f"{say()}\nand more",
    ],
)
def test_rubbish_is_an_error_that_shows_it(printed):
    with pytest.raises(OperationFailed, match="a peer printed no result") as caught:
        parse_result("a peer", printed, LOAD)
    assert caught.value.hint


@pytest.mark.parametrize("change", [{"handled": 9}, {"duplicates": 1}])
def test_a_time_in_which_not_each_record_was_handled_once_does_not_count(change):
    with pytest.raises(OperationFailed, match="does not count") as caught:
        parse_result("a peer", say(**change), LOAD)
    assert caught.value.facts.items() >= change.items()


# --- their processes ---


def test_a_program_that_ends_well_gives_its_result(tmp_path):
    assert run(f"print({say()!r})", tmp_path).seconds == 1.5


def test_a_failed_program_is_an_error_with_its_last_words(tmp_path):
    with pytest.raises(OperationFailed, match=r"ended with status 1: ValueError: no broker") as it:
        run("raise ValueError('no broker')", tmp_path)
    assert "headrace status" in it.value.hint


def test_a_program_that_fails_without_a_word_is_still_an_error(tmp_path):
    with pytest.raises(OperationFailed, match="ended with status 7: it left no message"):
        run("raise SystemExit(7)", tmp_path)


def test_a_killed_program_is_an_error_that_names_the_signal(tmp_path):
    with pytest.raises(OperationFailed, match="killed by SIGKILL") as caught:
        run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    assert "memory" in caught.value.hint


def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path):
    code = (
        "import os, pathlib, subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "pathlib.Path('pids').write_text(f'{os.getpid()} {child.pid}');"
        "time.sleep(60)"
    )
    started = time.monotonic()
    with pytest.raises(OperationFailed, match="did not handle 10 records within 10 s") as caught:
        run(code, tmp_path, limit=10)
    assert time.monotonic() - started < 60
    assert "'orders'" in caught.value.hint
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    # Who was killed may be seen for a moment longer.
    eventually(lambda: not any(map(runs, pids)), "both are gone", 30)


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_program_that_is_not_there_is_an_error_with_a_next_step(tmp_path):
    with pytest.raises(OperationFailed, match="cannot be started") as caught:
        run_peer("a peer", [str(tmp_path / "none")], LOAD, folder=tmp_path)
    assert "made anew" in caught.value.hint


def test_settings_in_our_environment_do_not_reach_a_peer(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_CONSUMER_GROUP", "other")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1m")
    code = (
        "import os; assert not {'KAFKA_CONSUMER_GROUP', 'JAVA_TOOL_OPTIONS'} & set(os.environ);"
        f"print({say()!r})"
    )
    assert run(code, tmp_path).handled == 10


# --- making them ready ---


def test_a_folder_is_made_once(tmp_path, progress):
    made: list[Path] = []
    for _ in range(2):
        folder = made_once(tmp_path / "a" / "b", "it", progress, made.append)
    assert made == [folder]


def test_a_folder_whose_making_failed_is_made_anew(tmp_path, progress):
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise ArtifactError("no network")

    with pytest.raises(ArtifactError, match="no network"):
        made_once(tmp_path / "b", "it", progress, fail)
    folder = made_once(tmp_path / "b", "it", progress, lambda _: None)
    assert [path.name for path in folder.iterdir()] == [READY]


def test_a_folder_that_cannot_be_made_is_an_error_with_a_next_step(tmp_path, progress):
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="cannot be made") as caught:
        made_once(tmp_path / "file" / "b", "it", progress, lambda _: None)
    assert "HEADRACE_CACHE" in caught.value.hint


def test_a_step_that_fails_gives_its_reason_and_the_hint():
    command = [sys.executable, "-c", "import sys; sys.exit('ERROR: no matching distribution')"]
    with pytest.raises(ArtifactError, match="installing failed: ERROR: no matching") as caught:
        run_to_make(command, "installing", "check the network", 30)
    assert caught.value.hint == "check the network"


def test_a_step_that_takes_too_long_is_an_error():
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(ArtifactError, match="took more than 1 s"):
        run_to_make(command, "installing", "check the network", 1)


# --- Java ---


def test_the_java_program_runs_with_all_jars_and_its_classes():
    command = parallel_consumer._command(JAVA, [Path("/a.jar"), Path("/classes")], ["x", "y"])
    assert command[0] == "/java/bin/java"
    assert command[-5:] == ["-cp", "/a.jar:/classes", "ParallelConsumerPeer", "x", "y"]


def test_the_program_is_compiled_by_the_compiler_among_the_jars_for_that_java():
    jars = [Path("/a.jar"), Path("/ecj-3.jar")]
    command = parallel_consumer._compile_command(JAVA, jars, Path("/out/P.java"))
    assert command[:3] == ["/java/bin/java", "-jar", "/ecj-3.jar"]
    assert command[command.index("--release") + 1] == "21"
    assert command[-3:] == ["-d", "/out", "/out/P.java"]


def test_the_lock_has_the_peer_and_the_compiler():
    locked = {artifact.name: artifact.version for artifact in read_lock(parallel_consumer.LOCK)}
    assert locked["parallel-consumer-core"] in parallel_consumer.NAME
    assert "ecj" in locked
    assert "slf4j-nop" in locked


@pytest.mark.parametrize("name", ["ParallelConsumerPeer.java", pyrallel.PROGRAM])
def test_the_programs_come_with_the_package(name):
    assert resources.files("headrace.bench.peers").joinpath(name).is_file()


# --- Pyrallel's Python ---


def fake_python(folder: Path, name: str, *, works: bool) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\nexit {0 if works else 127}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with Python 3.11 and whatever the test puts there."""
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "versions" / "3.11"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    return tmp_path


def test_a_newer_python_on_the_path_is_taken(machine):
    fake_python(machine / "bin", "python3.12", works=True)
    newest = fake_python(machine / "bin", "python3.13", works=True)
    assert pyrallel.find_python() == newest


def test_a_name_on_the_path_without_a_python_behind_it_is_passed_over(machine):
    fake_python(machine / "bin", "python3.13", works=False)
    beside = fake_python(machine / "versions" / "3.12.1" / "bin", "python3.12", works=True)
    assert pyrallel.find_python() == beside


def test_without_a_newer_python_there_is_a_next_step(machine):
    with pytest.raises(HeadraceError, match=r"needs Python 3\.12") as caught:
        pyrallel.find_python()
    assert "install Python" in caught.value.hint


def test_without_an_index_the_install_fails_with_a_hint(places, progress, monkeypatch):
    monkeypatch.setattr(pyrallel, "find_python", lambda: Path(sys.executable))
    commands: list[list[str]] = []

    def refuse(command: list[str], what: str, hint: str, seconds: float) -> None:
        commands.append(command)
        if "pip" in command:
            raise ArtifactError(f"{what} failed: no route", hint=hint)

    monkeypatch.setattr(pyrallel, "run_to_make", refuse)
    with pytest.raises(ArtifactError, match="no route") as caught:
        pyrallel._environment(places.cache, progress)
    assert "network" in caught.value.hint
    assert commands[1][-2] == "pyrallel-consumer==1.0.0"
    assert commands[1][-1].startswith("confluent-kafka==")


def test_pyrallels_program_does_without_headrace():
    program = resources.files("headrace.bench.peers").joinpath(pyrallel.PROGRAM)
    assert "headrace" not in "".join(re.findall(r"^(?:import|from) .*", program.read_text(), re.M))
