"""Labs judge by facts: they hold on a live cluster, and say so when a promise breaks."""

from headrace.clients import Connection
from headrace.labs import Lab, Stage, find_labs, get_lab
from headrace.labs.runner import run_lab
from headrace.observe import Silent


def stage_on(cluster) -> Stage:
    return Stage(Connection(cluster.bootstrap), cluster, Silent())


def test_every_lab_has_a_promise_and_is_listed(headrace):
    listed = headrace.json("lab", "list")
    assert [lab["name"] for lab in listed] == [lab.name for lab in find_labs()]
    assert all(lab["promise"].endswith(".") for lab in listed)


def test_the_quick_labs_hold_and_leave_no_topics(kafka_cluster, admin):
    before = set(admin.topic_names())
    for name in ("hello", "many-consumers", "read-offsets"):
        result = run_lab(get_lab(name), stage_on(kafka_cluster))
        assert result.held, result.to_json()
        assert result.facts
    assert {t for t in admin.topic_names() if not t.startswith("__")} <= before


def test_a_promise_that_breaks_is_told(kafka_cluster):
    def breaks(stage: Stage) -> None:
        stage.check("one holds", True)
        stage.check("one does not", False)

    result = run_lab(Lab("broken", "It holds.", 1, False, breaks), stage_on(kafka_cluster))
    assert not result.held


def test_a_lab_that_checks_nothing_or_raises_has_not_held(kafka_cluster):
    def raises(stage: Stage) -> None:
        stage.check("so far", True)
        raise ValueError("a defect in the lab")

    nothing = run_lab(Lab("empty", "It holds.", 1, False, lambda _s: None), stage_on(kafka_cluster))
    raised = run_lab(Lab("raises", "It holds.", 1, False, raises), stage_on(kafka_cluster))
    assert not nothing.held
    assert not raised.held
    assert "a defect in the lab" in (raised.error or "")


def test_the_command_runs_a_lab_on_the_cluster_given(headrace):
    (result,) = headrace.json("lab", "run", "many-consumers")
    assert {"name", "promise", "held", "seconds", "facts"} <= set(result)
    assert result["held"]


def test_labs_that_cannot_run_are_refused(headrace):
    assert "no lab" in headrace.refused(2, "lab", "run", "nonsense").error
    assert "local cluster" in headrace.refused(2, "lab", "run", "broker-failure").error
    headrace.refused(2, "lab", "run")


def test_the_doctor_finds_the_cluster_and_the_benchmarks_are_listed(headrace):
    findings = {f["check"]: f for f in headrace.json("doctor")["findings"]}
    assert "3 brokers answer" in findings["connection"]["detail"]
    assert all({"check", "ok", "detail", "hint"} <= set(f) for f in findings.values())
    unreachable = headrace.with_variables(HEADRACE_BOOTSTRAP="127.0.0.1:1")
    done = unreachable("doctor", "-o", "json", status=1)
    (wrong,) = [f for f in done.json["findings"] if not f["ok"]]
    assert wrong["check"] == "connection"
    assert "startup" in [b["name"] for b in headrace.json("bench", "list")]
