"""A worker whose connection was closed dies quietly; any other failure is told."""

import pytest

pytest.importorskip("pyspark")
from headrace.spark.daemon import CONNECTION_CLOSED, _Tales


def _fail_with(failure):
    try:
        raise failure
    except type(failure):
        _Tales.print_exc()


@pytest.mark.parametrize("failure", CONNECTION_CLOSED)
def test_a_closed_connection_is_not_told(capsys, failure):
    _fail_with(failure())
    assert capsys.readouterr().err == ""


def test_any_other_failure_is_told(capsys):
    _fail_with(OSError("disk full"))
    assert "disk full" in capsys.readouterr().err
