"""`headrace generate clickstream`: what it writes, what it refuses, what a crash leaves."""

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.cli.main import run
from headrace.services.clickstream import HEADER, rows
from headrace.services.generate import write_clickstream

LIMITED = """
import resource, sys
from headrace.cli.main import run

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
sys.exit(run(["generate", "clickstream", "--rows", "10000", "--out", sys.argv[1]]))
"""


@pytest.fixture
def generate(capfd):
    """Calls `headrace generate clickstream`: exit status, stdout and stderr."""

    def call(*arguments):
        status = run(["generate", "clickstream", *map(str, arguments)])
        out, err = capfd.readouterr()
        return status, out, err

    return call


def expected(count: int, seed: int = 0, bad: float = 0.0) -> bytes:
    return HEADER + b"".join(row for row, _ in rows(count, seed, bad))


def test_the_file_is_the_header_and_the_rows(generate, tmp_path):
    out = tmp_path / "events.csv"
    status, shown, err = generate(
        *("--rows", 25_000, "--out", out, "--seed", 5, "--bad", 0.001, "-o", "json")
    )
    content = out.read_bytes()
    assert (status, content) == (0, expected(25_000, 5, 0.001))
    assert json.loads(shown) == {
        "path": str(out),
        "rows": 25_000,
        "bad": 25,
        "bytes": len(content),
        "seed": 5,
    }
    assert "writing 25,000 rows" in err
    assert err.splitlines()[-1].strip() == "100 %"


def test_the_result_as_a_table_and_as_a_line(generate, tmp_path):
    out = tmp_path / "events.csv"
    status, shown, _ = generate("--rows", 1234, "--out", out)
    assert status == 0
    assert "1,234" in shown
    assert "events.csv" in shown
    _, shown, _ = generate("--rows", 1234, "--out", out, "-o", "ndjson")
    (line,) = shown.splitlines()
    assert json.loads(line)["rows"] == 1234


def test_no_rows_are_a_header(generate, tmp_path):
    out = tmp_path / "events.csv"
    assert generate("--rows", 0, "--out", out, "--bad", 1)[0] == 0
    assert out.read_bytes() == HEADER


def test_a_name_in_gz_is_compressed_always_to_the_same_bytes(generate, tmp_path):
    one, other = tmp_path / "one.csv.gz", tmp_path / "other.csv.gz"
    assert generate("--rows", 3_000, "--out", one)[0] == 0
    status, shown, _ = generate("--rows", 3_000, "--out", other, "-o", "json")
    assert status == 0
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes()[4:8] == b"\0\0\0\0"  # no time in the header
    assert gzip.decompress(one.read_bytes()) == expected(3_000)
    assert json.loads(shown)["bytes"] == one.stat().st_size


@given(count=st.integers(0, 200), bad=st.floats(0, 1), suffix=st.sampled_from([".csv", ".gz"]))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_told_is_what_is_in_the_file(tmp_path, count, bad, suffix):
    out = tmp_path / f"events{suffix}"
    made = write_clickstream(out, count, bad=bad)
    content = out.read_bytes()
    assert (made.rows, made.bad, made.bytes) == (count, round(count * bad), len(content))
    plain = gzip.decompress(content) if suffix == ".gz" else content
    assert plain == expected(count, 0, bad)


# --- what is refused ---


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--rows", -1, "--out", "x.csv"), "-1 rows"),
        (("--rows", 10, "--out", "x.csv", "--bad", -0.1), "no fraction"),
        (("--rows", 10, "--out", "x.csv", "--bad", 1.5), "no fraction"),
        (("--rows", 10, "--out", "x.csv", "--bad", "nan"), "no fraction"),
        (("--rows", 10, "--out", "x.csv", "--seed", 2**64), "too large"),
        (("--rows", 10, "--out", "no/where.csv"), "does not exist"),
        (("--rows", 10, "--out", "."), "is a folder"),
        (("--rows", 10, "--out", "-"), "cannot be -"),
        (("--rows", 10, "--out", "/dev/null"), "not a file"),
        (("--rows", "many", "--out", "x.csv"), "--rows"),
        (("--out", "x.csv"), "--rows"),
        (("--rows", 10), "--out"),
    ],
)
def test_bad_input_is_one_error_and_one_hint_and_no_file(generate, tmp_path, arguments, complaint):
    status, out, err = generate(*arguments)
    error, hint = err.splitlines()
    assert (status, out) == (2, "")
    assert error.startswith("error: ")
    assert complaint in error
    assert hint.startswith("hint: ")
    assert list((tmp_path / "work").iterdir()) == []


# --- whole or not there ---


def test_a_full_disk_leaves_the_old_file_and_nothing_else(run_python, tmp_path):
    out = tmp_path / "out" / "events.csv"
    out.parent.mkdir()
    out.write_text("old")
    done = run_python(LIMITED, str(out))
    error, hint = done.stderr.splitlines()[-2:]
    assert (done.returncode, done.stdout) == (1, "")
    assert error.startswith(f"error: {out} could not be written: ")
    assert hint.startswith("hint: ")
    assert [path.name for path in out.parent.iterdir()] == ["events.csv"]
    assert out.read_text() == "old"


def test_an_interrupt_leaves_nothing(tmp_path, progress, monkeypatch):
    def interrupt(amount: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "advance", interrupt)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(KeyboardInterrupt):
        write_clickstream(out / "events.csv", 10_000, progress=progress)
    assert list(out.iterdir()) == []


def test_the_finished_file_may_be_read_by_whom_the_umask_lets(generate, tmp_path):
    out, plain = tmp_path / "events.csv", tmp_path / "plain"
    plain.touch()
    assert generate("--rows", 1, "--out", out)[0] == 0
    assert out.stat().st_mode == plain.stat().st_mode
