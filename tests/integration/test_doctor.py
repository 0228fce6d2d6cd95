"""`headrace doctor`: what it looks at, and that every problem comes with a next step."""

from pathlib import Path

from support.cli import Cli

CHECKS = {
    "python",
    "client",
    "java for the servers",
    "kafka jars",
    "data folder",
    "disk",
    "ports",
    "connection",
}


def findings(document: dict[str, list[dict[str, object]]]) -> dict[object, dict[str, object]]:
    return {finding["check"]: finding for finding in document["findings"]}


def test_a_healthy_machine_has_no_problem(headrace: Cli) -> None:
    """Exit 0, every finding with the contract's fields, and the cluster's brokers counted."""
    done = headrace("doctor", "-o", "json")
    found = findings(done.json)
    assert done.stderr == ""
    assert set(found) >= CHECKS
    for finding in found.values():
        assert finding.keys() >= {"check", "ok", "detail", "hint"}
        assert finding["ok"] is True
    assert "3 brokers answer" in str(found["connection"]["detail"])
    assert "verified" in str(found["kafka jars"]["detail"])


def test_the_table_tells_the_same(headrace: Cli) -> None:
    """For people: one line a finding."""
    table = headrace("doctor").stdout
    assert all(check in table for check in CHECKS)
    assert "PROBLEM" not in table


def test_an_empty_cache_is_no_problem_and_stays_empty(headrace: Cli, tmp_path: Path) -> None:
    """What is not fetched yet is told with the command that fetches it; doctor fetches nothing."""
    new = headrace.with_variables(HEADRACE_CACHE=str(tmp_path / "cache"))
    found = findings(new.json("doctor"))
    assert "not here yet" in str(found["kafka jars"]["detail"])
    assert "headrace up" in str(found["kafka jars"]["hint"])
    assert list((tmp_path / "cache").rglob("*.jar")) == []


def test_a_damaged_jar_is_found(headrace: Cli, tmp_path: Path) -> None:
    """A file in the cache that is not what the lock names: exit 1, its name, and what mends it."""
    from headrace.local.artifacts import Store, read_lock

    artifact = read_lock("kafka")[0]
    jar = Store(tmp_path / "cache").path(artifact)
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"half a jar")
    damaged = headrace.with_variables(HEADRACE_CACHE=str(tmp_path / "cache"))
    jars = findings(damaged("doctor", "-o", "json", status=1).json)["kafka jars"]
    assert jars["ok"] is False
    assert artifact.file_name in str(jars["detail"])
    assert "headrace up" in str(jars["hint"])


def test_without_any_cluster_the_next_step_is_up(headrace: Cli, tmp_path: Path) -> None:
    """No cluster named and none running is no problem, but a hint."""
    alone = headrace.with_variables(HEADRACE_HOME=str(tmp_path / "home"), HEADRACE_BOOTSTRAP="")
    connection = findings(alone.json("doctor"))["connection"]
    assert connection["ok"] is True
    assert "headrace up" in str(connection["hint"])
