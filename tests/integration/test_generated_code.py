"""Spark as its users have it: with generated code, and with both of Java's compilers.

All other tests run without, which takes less than half of the time on their few rows.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = (
    *("test_pipelines.py", "test_value_readers.py", "test_sql.py", "test_ingest.py"),
    "test_batch_cost.py::test_batches_of_the_same_hours_run_the_code_that_is_there",
)


@pytest.mark.processes
@pytest.mark.long(300)
@pytest.mark.parametrize("tests", TESTS)
def test_the_same_tests_hold_with_generated_code(tests: str, tmp_path: Path) -> None:
    """An empty variable stands over the suite's own options."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'tests'}", str(HERE / tests)],
        cwd=HERE.parent.parent,
        env=os.environ | {"SPARK_SUBMIT_OPTS": ""},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
