"""What a local cluster does without a server being started: states, refusals, cleaning up."""

import os
import signal
from types import SimpleNamespace

import psutil
import pytest

from headrace.errors import (
    ArtifactError,
    BadInput,
    ClusterError,
    ForeignData,
    NoCluster,
    UnknownBroker,
)
from headrace.local import LocalCluster, State, artifacts, local_clusters, running_cluster
from headrace.local import cluster as cluster_module
from headrace.local.cluster import sweep
from headrace.local.processes import mark
from headrace.local.spec import KAFKA_VERSION, BrokerSpec, ClusterSpec, Owner, new_cluster_id, save

ME = Owner(os.getpid(), psutil.Process().create_time())
DEAD = Owner(os.getpid(), 1.0)  # our pid, but a process that started long ago


@pytest.fixture
def existing(places):
    """Make a cluster of three stopped brokers."""

    def make(name: str = "default", owner: Owner | None = None) -> LocalCluster:
        brokers = tuple(BrokerSpec(n, 9091 + n, 20_000 + n) for n in (1, 2, 3))
        spec = ClusterSpec(name, new_cluster_id(), KAFKA_VERSION, brokers, owner=owner)
        folder = places.clusters / name
        for broker in brokers:
            (folder / f"broker-{broker.id}").mkdir(parents=True)
        save(folder, spec)
        return LocalCluster(name=name, places=places)

    return make


@pytest.fixture
def run_broker(run_marked):
    """A process that stands for a running broker."""
    return lambda cluster, n: run_marked(mark(cluster.spec.cluster_id, f"broker-{n}"))


@pytest.fixture
def empty_repository(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", str(tmp_path / "empty"))
    monkeypatch.setattr(artifacts, "time", SimpleNamespace(sleep=lambda seconds: None))


# --- refusals ---


@pytest.mark.parametrize(
    "wishes", [{"brokers": 0}, {"brokers": 10}, {"name": "../x"}, {"port": 0}, {"port": 70_000}]
)
def test_impossible_wishes_are_refused_at_once(wishes):
    with pytest.raises(BadInput):
        LocalCluster(**wishes)


def test_a_cluster_that_is_not_there_names_those_that_are(existing, places):
    existing("mine")
    with pytest.raises(NoCluster, match="there is mine") as caught:
        LocalCluster(name="other", places=places).status()
    assert "headrace up --name other" in caught.value.hint
    with pytest.raises(NoCluster):
        LocalCluster(name="other", places=places).down()


def test_an_unknown_broker_is_refused_and_the_known_ones_are_named(existing):
    with pytest.raises(UnknownBroker) as caught:
        existing().kill(7)
    assert caught.value.hint == "its brokers are 1, 2, 3"


def test_a_broker_that_does_not_run_cannot_be_paused(existing):
    with pytest.raises(ClusterError, match="does not run") as caught:
        existing().pause(1)
    assert "headrace broker start 1" in caught.value.hint


def test_logs_of_a_server_it_does_not_have_are_refused(existing):
    cluster = existing()
    assert cluster.log_of("2").name == "server.log"
    with pytest.raises(UnknownBroker):
        cluster.log_of("registry")


# --- states ---


def test_a_stopped_cluster_is_shown_with_all_its_brokers(existing):
    status = existing().status()
    assert [broker.state for broker in status.brokers] == [State.STOPPED] * 3
    assert not status.running
    assert not status.healthy
    assert status.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"


def test_a_status_has_the_fields_of_the_contract(existing):
    document = existing().status().to_json()
    assert {"name", "bootstrap", "brokers", "registry", "connect", "data_dir"} <= set(document)
    assert {"id", "pid", "port", "state"} <= set(document["brokers"][0])


def test_each_broker_is_shown_in_its_own_state(existing, run_broker, wait_until):
    cluster = existing()
    running, paused = run_broker(cluster, 1), run_broker(cluster, 2)
    cluster.pause(2)
    wait_until(lambda: paused.status() == psutil.STATUS_STOPPED)
    brokers = cluster.status().brokers
    assert [broker.state for broker in brokers] == [State.RUNNING, State.PAUSED, State.STOPPED]
    assert [broker.pid for broker in brokers] == [running.pid, paused.pid, None]
    assert brokers[0].memory > 0
    cluster.resume(2)
    wait_until(lambda: cluster.status().brokers[1].state is State.RUNNING)


def test_a_killed_broker_is_gone_and_the_others_are_not(existing, run_broker):
    cluster = existing()
    run_broker(cluster, 1)
    other = run_broker(cluster, 2)
    cluster.kill(1)
    assert [broker.pid for broker in cluster.status().brokers] == [None, other.pid, None]


def test_stopping_a_broker_that_does_not_stop_is_told(
    existing, run_marked, monkeypatch, progress, wait_until
):
    monkeypatch.setattr("headrace.local.stopping.SECONDS_TO_STOP", 0.2)
    cluster = existing()
    cluster._progress = progress
    ready = cluster.folder / "ready"
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code = deaf + f"open({str(ready)!r}, 'w').close(); time.sleep(60)"
    run_marked(mark(cluster.spec.cluster_id, "broker-1"), code)
    wait_until(ready.exists)
    cluster.stop(1)
    assert cluster.status().brokers[0].state is State.STOPPED
    assert progress.warnings == ["broker-1 did not stop in time and was killed"]


# --- down and cleaning up ---


def test_down_stops_every_broker_and_keeps_the_data(existing, run_broker):
    cluster = existing()
    run_broker(cluster, 1)
    cluster.down()
    assert not cluster.status().running
    assert (cluster.folder / "broker-1").is_dir()


def test_a_wipe_removes_the_data_even_of_a_damaged_cluster(existing):
    cluster = existing()
    (cluster.folder / "cluster.json").write_text("damaged")
    with pytest.raises(ForeignData):
        cluster.down()
    cluster.down(wipe=True)
    assert not cluster.folder.exists()


def test_clusters_of_dead_owners_are_swept_and_all_others_stay(existing, places, run_broker):
    dead, alive, kept = existing("dead", DEAD), existing("alive", ME), existing("kept")
    orphan = run_broker(dead, 1)
    sweep(places)
    assert [cluster.name for cluster in local_clusters(places)] == ["alive", "kept"]
    assert not dead.folder.exists()
    assert alive.folder.exists()
    assert kept.folder.exists()
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


def test_folders_without_a_cluster_are_overlooked(existing, places):
    assert local_clusters(places) == []
    existing("mine")
    (places.clusters / "not a cluster").mkdir()
    (places.clusters / ".mine.lock").write_text("")
    assert [cluster.name for cluster in local_clusters(places)] == ["mine"]


def test_a_cluster_removed_while_we_look_is_overlooked(existing, places, run_broker, monkeypatch):
    run_broker(existing("mine"), 1)
    vanished = LocalCluster(name="vanished", places=places)
    here = local_clusters(places)
    monkeypatch.setattr(cluster_module, "local_clusters", lambda _places: [vanished, *here])
    assert running_cluster(places=places).name == "mine"


# --- an `up` that fails ---


def test_a_new_cluster_that_cannot_be_started_leaves_nothing_behind(places, empty_repository):
    cluster = LocalCluster(1, name="new", places=places)
    with pytest.raises(ArtifactError):
        cluster.up()
    assert local_clusters(places) == []
    assert not cluster.folder.exists()


def test_an_existing_cluster_that_cannot_be_started_keeps_its_data(existing, empty_repository):
    cluster = existing()
    before = cluster.spec
    with pytest.raises(ArtifactError):
        cluster.up()
    assert cluster.spec.cluster_id == before.cluster_id
    assert (cluster.folder / "broker-1").is_dir()


def test_a_home_that_cannot_be_written_is_an_error_with_a_next_step(places):
    places.home.write_text("a file where a folder is expected")
    with pytest.raises(ClusterError) as caught:
        LocalCluster(1, name="new", places=places).up()
    assert "HEADRACE_HOME" in caught.value.hint


def test_the_wrong_number_of_brokers_stops_nothing(existing, places, run_broker):
    cluster = existing()
    process = run_broker(cluster, 1)
    with pytest.raises(BadInput, match="has 3 brokers, not 1"):
        LocalCluster(1, name="default", places=places).up()
    assert process.is_running()
    assert process.status() != psutil.STATUS_ZOMBIE
    process.send_signal(signal.SIGKILL)
