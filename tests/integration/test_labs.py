"""`headrace lab` and `headrace bench`: promises listed, acted out, and judged."""

import pytest

from headrace.clients import Admin, Connection
from headrace.errors import BadInput
from headrace.labs import Lab, Stage, find_labs, get_lab, run_labs
from headrace.labs.runner import run_lab
from headrace.local import LocalCluster
from headrace.observe import Silent
from support.cli import Cli
from support.home import Home
from support.waiting import eventually

QUICK = (
    *("many-consumers", "read-offsets", "interceptor", "partitioning", "region-partitioner"),
    "replay",
)


@pytest.fixture
def stage(kafka_cluster: LocalCluster) -> Stage:
    return Stage(Connection(kafka_cluster.bootstrap), kafka_cluster, Silent())


def make_lab(run: object, **needs: bool) -> Lab:
    return Lab("made-up", "Something holds.", 1, needs.pop("needs_faults", False), run, **needs)


def test_hello_holds_on_a_cluster_of_its_own(home: Home) -> None:
    """`lab run hello` starts a cluster, keeps its promise, and leaves nothing behind."""
    done = home("lab", "run", "hello", "-o", "json")
    (result,) = done.json
    assert result.keys() >= {"name", "promise", "held", "seconds", "facts"}
    assert (result["name"], result["held"], result["error"]) == ("hello", True, None)
    assert result["facts"]["read"][0] == "Hello World"
    assert "lab hello" in done.stderr
    assert home.servers() == []
    assert list((home.path / "clusters").glob("[!.]*")) == []


@pytest.mark.long(35)
def test_the_quick_labs_hold_and_leave_no_topics(kafka_cluster: LocalCluster, admin: Admin) -> None:
    """Labs that hurt nobody hold on the session's cluster too, which is then as it was before."""
    before = set(admin.topic_names())
    for name in QUICK:
        stage = Stage(Connection(kafka_cluster.bootstrap), kafka_cluster, Silent())
        result = run_lab(get_lab(name), stage)
        assert result.held, result.to_json()
        assert result.facts

    def added() -> set[str]:
        return {topic for topic in admin.topic_names() if not topic.startswith("__")} - before

    eventually(lambda: not added(), "every broker has forgotten the labs' topics")


def test_the_command_runs_a_lab_on_the_cluster_given(headrace: Cli) -> None:
    """With HEADRACE_BOOTSTRAP set, a lab runs there and starts no cluster."""
    done = headrace("lab", "run", "many-consumers", "-o", "json")
    assert [result["held"] for result in done.json] == [True]
    assert "starting" not in done.stderr


def test_list_names_every_lab_with_its_promise(headrace: Cli) -> None:
    """`lab list -o json` has name and promise of all labs there are."""
    listed = headrace.json("lab", "list")
    assert [lab["name"] for lab in listed] == [lab.name for lab in find_labs()]
    assert "hello" in {lab["name"] for lab in listed}
    assert all(lab["promise"].endswith(".") for lab in listed)


def test_bench_list_names_every_benchmark(headrace: Cli) -> None:
    """`bench list -o json` has name and question of all benchmarks there are."""
    listed = headrace.json("bench", "list")
    assert "startup" in {benchmark["name"] for benchmark in listed}
    assert all(benchmark["question"] for benchmark in listed)


def test_an_unknown_lab_or_benchmark_is_bad_input(headrace: Cli) -> None:
    """Exit 2 and the names there are; no lab at all and too many ways to say it, too."""
    assert "hello" in headrace.refused(2, "lab", "run", "helo").hint
    assert "startup" in headrace.refused(2, "bench", "run", "startop").hint
    headrace.refused(2, "lab", "run")
    headrace.refused(2, "lab", "run", "hello", "--all")


def test_a_lab_that_hurts_brokers_refuses_a_cluster_that_is_not_ours(headrace: Cli) -> None:
    """With HEADRACE_BOOTSTRAP set, a lab that needs a local cluster is refused, not skipped."""
    refused = headrace.refused(2, "lab", "run", "hello")
    assert "local cluster" in refused.error


@pytest.mark.parametrize(
    ("needs", "what"),
    [("needs_registry", "schema registry"), ("needs_connect", "Connect worker")],
)
def test_a_lab_refuses_a_cluster_without_what_it_needs(
    kafka_cluster: LocalCluster, needs: str, what: str
) -> None:
    """A lab that needs a registry or a Connect worker is refused before it begins."""
    lab = make_lab(lambda _stage: None, **{needs: True})
    with pytest.raises(BadInput, match=what):
        run_labs([lab], Silent(), given=Connection(kafka_cluster.bootstrap), local=kafka_cluster)


def test_a_check_that_fails_breaks_the_promise(stage: Stage) -> None:
    """One claim of two does not hold: the lab did not hold, and says which."""

    def run(stage: Stage) -> None:
        stage.fact("seen", 1)
        stage.check("this holds", True)
        stage.check("this does not", False)

    result = run_lab(make_lab(run), stage)
    assert (result.held, result.error, result.facts) == (False, None, {"seen": 1})
    assert [(c.claim, c.held) for c in result.checks] == [
        ("this holds", True),
        ("this does not", False),
    ]


def test_a_lab_that_checks_nothing_or_fails_does_not_hold(
    kafka_cluster: LocalCluster, stage: Stage
) -> None:
    """No check, a defect, an error on purpose: none of them is a promise kept."""

    def defect(stage: Stage) -> None:
        stage.check("so far so good", True)
        raise ZeroDivisionError("oops")

    def complaint(stage: Stage) -> None:
        stage.check("so far so good", True)
        raise BadInput("no such thing", hint="look elsewhere")

    connection = Connection(kafka_cluster.bootstrap)
    labs = [make_lab(lambda _stage: None), make_lab(defect), make_lab(complaint)]
    results = run_labs(labs, Silent(), given=connection, local=kafka_cluster)
    assert [result.held for result in results] == [False, False, False]
    assert [result.error for result in results] == [
        None,
        "ZeroDivisionError: oops",
        "no such thing (look elsewhere)",
    ]


def test_a_broken_promise_is_exit_1(
    kafka_cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """`headrace lab run` prints the result and exits 1 when a promise did not hold."""
    from headrace.cli.main import run

    broken = make_lab(lambda stage: stage.check("this does not hold", False))
    monkeypatch.setattr("headrace.labs.get_lab", lambda _name: broken)
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", kafka_cluster.bootstrap)
    assert run(["lab", "run", "made-up", "-o", "ndjson"]) == 1
    assert b'"held":false' in capfdbinary.readouterr().out


def test_a_lab_removes_its_topics_and_groups(stage: Stage) -> None:
    """Whatever the outcome, the cluster is as it was before."""
    made: list[str] = []

    def run(stage: Stage) -> None:
        made.append(stage.topic("of-a-lab"))
        raise RuntimeError("in the middle")

    assert not run_lab(make_lab(run), stage).held
    eventually(lambda: not stage.admin.has_topic(made[0]), "every broker has forgotten the topic")
