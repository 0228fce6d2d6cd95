"""Errors become one line, a next step and an exit status; a traceback only with --debug."""

import subprocess
import sys

import pytest

from headrace.cli import cluster, main
from headrace.errors import BadInput, PortInUse


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command line; `status` is replaced by something that raises the given error."""

    def run(*arguments: str, raising: BaseException | None = None) -> tuple[int, str, str]:
        def fail(*_arguments, **_options):
            raise raising

        if raising is not None:
            monkeypatch.setattr(cluster, "_existing", fail)
        status = main.run(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_help_is_a_success_on_stdout(call):
    status, out, err = call("--help")
    assert (status, err) == (0, "")
    assert "Usage: headrace" in out


def test_the_version_is_printed(call):
    status, out, _ = call("--version")
    assert status == 0
    assert out.startswith("headrace ")


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["nosuch"], "No such command 'nosuch'", "headrace --help"),
        (["topic", "nosuch"], "No such command 'nosuch'", "headrace topic --help"),
        (["up", "--nosuch"], "--nosuch", "headrace up --help"),
        (["up", "--brokers", "many"], "--brokers", "headrace up --help"),
        (["topic", "create"], "NAME", "headrace topic create --help"),
        (["broker", "hurt", "1"], "hurt", "headrace broker --help"),
        (["status", "-o", "xml"], "xml", "headrace status --help"),
    ],
)
def test_bad_usage_is_an_error_and_a_hint_on_stderr_with_status_two(call, arguments, error, hint):
    status, out, err = call(*arguments)
    first, second = err.splitlines()
    assert (status, out) == (2, "")
    assert first.startswith("error: ")
    assert error in first
    assert second == f"hint: see `{hint}`"


@pytest.mark.parametrize("arguments", [[], ["topic"]])
def test_without_a_command_help_is_shown_and_the_last_lines_say_what_is_missing(call, arguments):
    status, out, err = call(*arguments)
    path = " ".join(["headrace", *arguments])
    assert (status, out) == (2, "")
    assert err.startswith(f"Usage: {path} ")
    assert err.splitlines()[-2:] == [f"error: {path} needs a command", f"hint: see `{path} --help`"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [(BadInput("wrong", hint="right"), 2), (PortInUse("taken", hint="free it"), 1)],
)
def test_an_error_of_ours_is_told_with_its_hint_and_status(call, error, expected):
    status, out, err = call("status", raising=error)
    assert (status, out) == (expected, "")
    assert err == f"error: {error.message}\nhint: {error.hint}\n"


def test_an_error_of_several_lines_is_told_in_one(call):
    _, _, err = call("status", raising=BadInput("one\n  two\tthree"))
    assert err == "error: one two three\n"


def test_an_unexpected_exception_is_one_line_and_no_traceback(call):
    status, out, err = call("status", raising=RuntimeError("a\ndefect"))
    assert (status, out) == (1, "")
    assert err.splitlines()[0] == "error: RuntimeError: a defect"
    assert err.splitlines()[1].startswith("hint: this is a defect in Headrace")
    assert "Traceback" not in err


@pytest.mark.parametrize("error", [RuntimeError("defect"), PortInUse("taken")])
def test_with_debug_the_traceback_is_shown_too(call, error):
    _, _, err = call("--debug", "status", raising=error)
    assert "Traceback" in err
    assert f"{type(error).__name__}" in err
    assert "\nerror: " in err


def test_debug_does_not_outlive_its_call(call):
    call("--debug", "status", raising=RuntimeError("defect"))
    _, _, err = call("status", raising=RuntimeError("defect"))
    assert "Traceback" not in err


def test_ctrl_c_exits_with_130_and_no_traceback(call):
    status, out, err = call("status", raising=KeyboardInterrupt())
    assert (status, out, err) == (130, "", "stopped\n")


def after_interrupt(error):
    """The error as it is when the cleanup after Ctrl-C raises it."""
    error.__context__ = KeyboardInterrupt()
    return error


def test_a_cleanup_that_fails_after_ctrl_c_is_no_defect(call):
    status, out, err = call("status", raising=after_interrupt(ConnectionRefusedError("gone")))
    assert (status, out, err) == (130, "", "stopped\n")


def test_what_a_cleanup_could_not_stop_is_a_warning(call):
    status, out, err = call("status", raising=after_interrupt(PortInUse("broker 1 still runs")))
    assert (status, out) == (130, "")
    assert err == "warning: while stopping: broker 1 still runs\nstopped\n"


def test_with_debug_a_failed_cleanup_is_shown(call):
    _, _, err = call("--debug", "status", raising=after_interrupt(ConnectionRefusedError("gone")))
    assert "Traceback" in err
    assert err.endswith("stopped\n")


SIGNALLED_AT_EXIT = """
import atexit, os, signal, sys, time
from headrace.cli.main import main
def signalled():
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    time.sleep(0.1)
atexit.register(signalled)
main()
"""


def test_a_signal_while_python_exits_changes_nothing():
    command = [sys.executable, "-c", SIGNALLED_AT_EXIT, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cluster_that_is_not_there_is_told_with_the_command_that_starts_it(call):
    status, out, err = call("status", "--name", "mine")
    assert (status, out) == (1, "")
    assert (
        err == "error: there is no cluster 'mine'\nhint: start it with `headrace up --name mine`\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--brokers", "10"],
        ["up", "--name", "../x"],
        ["up", "--port", "70000"],
        ["topic", "create", "a b"],
        ["topic", "create", "a", "-c", "x"],
        ["consume", "t", "-n", "0"],
        ["consume", "t", "--from", "yesterday"],
        ["produce", "t", "--key-separator", ""],
        ["produce", "t", "--input", "ndjson", "--key-separator", ":"],
        ["produce", "t", "--keep-partitions"],
        ["lab", "run"],
        ["lab", "run", "nosuch"],
        ["bench", "run", "nosuch"],
        ["group", "reset", "g", "--topic", "t", "--to", "yesterday"],
        ["--profile", "nosuch", "topic", "list"],
    ],
)
def test_bad_input_is_refused_before_any_cluster_is_needed(call, arguments):
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert "\nhint: " in err


def test_the_installed_command_exits_with_the_status():
    command = [sys.executable, "-c", "from headrace.cli.main import main; main()", "nosuch"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such command")


@pytest.mark.parametrize("arguments", ["--help", "bench list", "bench list -o json", "doctor"])
def test_a_reader_that_goes_away_is_no_error(arguments):
    run = f"{sys.executable} -c 'from headrace.cli.main import main; main()'"
    command = f"{run} {arguments} | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
