"""An error is a lab's outcome; Ctrl-C ends all labs, also if a lab's cleanup fails."""

from types import SimpleNamespace

import pytest

from headrace.errors import OperationFailed
from headrace.labs.runner import run_lab


def play(run):
    cleaned = []
    stage = SimpleNamespace(clean_up=lambda: cleaned.append(True), held=True, facts={}, checks=[])
    try:
        return run_lab(SimpleNamespace(name="lab", promise="holds", run=run), stage)
    finally:
        assert cleaned


def fail_to_clean_up(_stage):
    try:
        raise KeyboardInterrupt
    finally:
        raise OperationFailed("a query failed", hint="")


def fail(_stage):
    raise OperationFailed("no answer", hint="ask again")


def test_a_cleanup_that_fails_does_not_hide_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        play(fail_to_clean_up)


def test_an_error_is_an_outcome():
    result = play(fail)
    assert (result.held, result.error) == (False, "no answer (ask again)")
