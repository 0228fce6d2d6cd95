"""A worker whose pipe was closed dies quietly; any other failure is told."""

import pytest

pytest.importorskip("pyspark")
from headrace.spark.daemon import _Tales


def _fail_with(failure):
    try:
        raise failure
    except type(failure):
        _Tales.print_exc()


def test_a_broken_pipe_is_not_told(capsys):
    _fail_with(BrokenPipeError())
    assert capsys.readouterr().err == ""


def test_any_other_failure_is_told(capsys):
    _fail_with(OSError("disk full"))
    assert "disk full" in capsys.readouterr().err
