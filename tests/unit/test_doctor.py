"""The doctor looks at everything, says what is wrong, and never fails on what it finds."""

import socket

import pytest

from headrace.local import ports
from headrace.services.doctor import Finding, examine

CHECKS = [
    "python",
    "client",
    "java for the servers",
    "java for spark",
    "kafka jars",
    "registry archive",
    "data folder",
    "disk",
    "ports",
    "connection",
]


def examined() -> dict[str, Finding]:
    return {finding.check: finding for finding in examine()}


def test_a_new_machine_is_fine_and_told_its_next_steps():
    findings = examined()
    assert list(findings) == CHECKS
    assert all(finding.ok for finding in findings.values())
    assert "not here yet" in findings["kafka jars"].detail
    assert "headrace up" in findings["connection"].hint


def test_a_damaged_jar_is_a_problem_that_names_it(places):
    from headrace.local.artifacts import Store, read_lock

    damaged = read_lock("kafka")[0]
    path = Store(places.cache).path(damaged)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    finding = examined()["kafka jars"]
    assert not finding.ok
    assert damaged.file_name in finding.detail


@pytest.mark.parametrize(
    ("variable", "check"),
    [
        ("HEADRACE_HOME", "data folder"),
        ("HEADRACE_HOME", "disk"),
    ],
)
def test_a_folder_that_cannot_be_used_is_a_finding_and_not_a_crash(
    tmp_path, monkeypatch, variable, check
):
    (tmp_path / "file").write_text("a file where a folder is expected")
    monkeypatch.setenv(variable, str(tmp_path / "file" / "below"))
    findings = examined()
    assert list(findings) == CHECKS
    assert not findings[check].ok
    assert variable in findings[check].hint


def test_a_stranger_on_the_usual_port_is_told_but_no_problem(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(ports, "USUAL_BROKER_PORT", taken.getsockname()[1])
        finding = examined()["ports"]
    assert finding.ok
    assert "is in use by" in finding.detail


def test_a_broken_profile_is_a_problem_with_its_hint(tmp_path):
    (tmp_path / "work" / "headrace.toml").write_text("= broken")
    finding = examined()["connection"]
    assert not finding.ok
    assert "headrace.toml" in finding.detail
    assert finding.hint
