"""A worker whose connection was closed dies quietly; any other failure of it is told."""

import pytest

pytest.importorskip("pyspark")
from headrace.spark.daemon import _Tales


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (BrokenPipeError(), False),
        (ConnectionResetError(), False),
        (EOFError(), False),
        (OSError("disk full"), True),
        (ValueError("odd"), True),
    ],
)
def test_only_a_closed_connection_is_not_told(capsys, failure, told):
    try:
        raise failure
    except Exception:
        _Tales.print_exc()
    assert ("Traceback" in capsys.readouterr().err) == told
