"""A named cluster from `up` to `down --wipe`, through crashes, strangers and haste."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from headrace.clients import Admin, Producer, Reader
from headrace.config import Places
from headrace.local import LocalCluster
from headrace.local.ports import choose_free
from support.cli import Running, together
from support.home import Home
from support.processes import is_alive, servers_under
from support.waiting import eventually

pytestmark = pytest.mark.processes
STATUS_FIELDS = {"name", "bootstrap", "brokers", "registry", "connect", "data_dir"}
OWNER = """
import sys, time
from headrace.local import LocalCluster
cluster = LocalCluster()
cluster.up()
sys.stdout.write(cluster.name + chr(10))
sys.stdout.flush()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home that the tests of this file share, so that not each has to start from nothing."""
    home = Home(tmp_path_factory.mktemp("house"))
    yield home
    home.close()


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """A process that has nothing to do with Headrace."""
    with subprocess.Popen(["sleep", "300"]) as child:
        yield psutil.Process(child.pid)
        child.kill()


def pids(status: dict[str, Any]) -> list[int]:
    return sorted(broker["pid"] for broker in status["brokers"])


def standing(house: Home) -> dict[str, Any]:
    """The shared cluster, started if the test before left it down."""
    return dict(house.json("status" if house.servers("default") else "up"))


def write(status: dict[str, Any], topic: str, *values: str) -> None:
    """Into a new topic, and acknowledged."""
    Admin(status["bootstrap"]).create_topic(topic)
    with Producer(status["bootstrap"]) as producer:
        for value in values:
            producer.send(topic, value)


def read(status: dict[str, Any], topic: str) -> list[str]:
    with Reader(topic, connection=status["bootstrap"]) as reader:
        return [(r.value or b"").decode() for batch in reader.batches() for r in batch]


def test_two_ups_at_once_make_one_cluster_that_serves_at_once(home: Home) -> None:
    """The second waits for the first; both report the same servers, and the next command works."""
    one, other = together(home.start("up", "-o", "json"), home.start("up", "-o", "json"))
    home("topic", "create", "first")
    home("produce", "first", stdin="a\nb\n")
    assert [r["value"] for r in home.json("consume", "first")] == ["a", "b"]
    status = one.json
    (broker,) = status["brokers"]
    assert status.keys() >= STATUS_FIELDS
    assert (status["name"], status["registry"], status["connect"]) == ("default", None, None)
    assert status["bootstrap"] == other.json["bootstrap"] == f"127.0.0.1:{broker['port']}"
    assert (broker["id"], broker["state"]) == (1, "running")
    assert [broker["pid"]] == pids(other.json) == home.servers()
    assert status["data_dir"] == str(home.cluster())


def test_up_again_is_harmless(house: Home) -> None:
    """A second `up` changes no process, and `status` tells the same as `up`."""
    first, again = standing(house), house.json("up")
    status = house("status", "-o", "json")
    assert pids(first) == pids(again) == pids(status.json) == house.servers("default")
    assert status.json.keys() >= STATUS_FIELDS
    assert status.stderr == ""


def test_after_a_power_cut_the_cluster_comes_back_with_its_data(house: Home) -> None:
    """SIGKILL for every server: `status` says so, `up` brings back what was acknowledged."""
    before = standing(house)
    write(before, "power", "one", "two")
    house.pull_the_plug("default")
    dark = house.json("status")
    assert [(b["state"], b["pid"]) for b in dark["brokers"]] == [("stopped", None)]
    after = house.json("up")
    assert after["bootstrap"] == before["bootstrap"]
    assert pids(after) != pids(before)
    assert read(after, "power") == ["one", "two"]


def test_a_pid_file_that_names_a_stranger_does_not_hurt_it(
    house: Home, stranger: psutil.Process
) -> None:
    """A pid is never believed: the real server is found, and only that is signalled."""
    (real,) = pids(standing(house))
    pid_file = house.cluster() / "broker-1" / "pid"
    assert int(pid_file.read_text()) == real

    pid_file.write_text(str(stranger.pid))
    assert pids(house.json("status")) == [real]
    pid_file.write_text(str(stranger.pid))
    house("broker", "kill", "1")
    assert house.servers("default") == []

    pid_file.write_text(str(stranger.pid))
    assert house.json("status")["brokers"][0]["state"] == "stopped"
    refused = house.refused(1, "broker", "pause", "1")
    assert "broker start 1" in refused.hint
    assert pids(house.json("broker", "start", "1")) == house.servers("default") != []
    assert is_alive(stranger)


def test_data_survives_down_and_up(house: Home) -> None:
    """An orderly stop leaves no process, and loses nothing."""
    write(standing(house), "kept", "still", "here")
    done = house("down", "-o", "json", seconds=30)
    assert done.json == {"name": "default", "stopped": True, "wiped": False}
    assert house.servers("default") == []
    house("down")  # again is harmless
    assert read(house.json("up"), "kept") == ["still", "here"]


def test_a_port_that_a_stranger_took_meanwhile_is_given_up_with_a_warning(house: Home) -> None:
    """The cluster moves to other ports, says so on stderr, and has its data."""
    before = standing(house)
    write(before, "moved", "along")
    house.pull_the_plug("default")
    port = before["brokers"][0]["port"]
    with socket.create_server(("127.0.0.1", port)):
        up = house("up", "-o", "json")
        assert f"warning: port {port} is in use" in up.stderr
        assert up.json["brokers"][0]["port"] != port
        assert read(up.json, "moved") == ["along"]


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("cluster.json", marks=pytest.mark.long(10)),
        pytest.param("broker-1/server.log", marks=pytest.mark.long(10)),
        "broker-1/pid",
    ],
)
def test_up_killed_half_way_can_be_run_again(home: Home, moment: str) -> None:
    """SIGKILL when the cluster has just a name, when its data folder is made, and when its broker
    is starting."""
    with home.start("up") as first:
        eventually((home.cluster() / moment).exists, f"{moment} is there", every=0.001)
        first.process.kill()
        first.process.wait()
    status = home.json("up")
    assert pids(status) == home.servers()
    write(status, "recovered", "yes")
    assert read(status, "recovered") == ["yes"]


def test_clusters_stand_side_by_side(house: Home) -> None:
    """Each name has its own ports and data; wiping one removes it whole and spares the other."""
    standing(house)
    second = house.json("up", "--name", "second", "--port", str(free_port()))
    house("--profile", "second", "topic", "create", "only-here")
    assert "only-here" not in {t["name"] for t in house.json("topic", "list")}
    assert "only-here" in {t["name"] for t in house.json("--profile", "second", "topic", "list")}

    house("down", "--name", "second", "--wipe")
    assert not house.cluster("second").exists()
    assert not any(is_alive(psutil.Process(p)) for p in pids(second) if psutil.pid_exists(p))
    assert pids(house.json("status")) == house.servers()
    assert "'second'" in house.refused(1, "status", "--name", "second").error


def test_fresh_gives_up_the_data(house: Home) -> None:
    """`up --fresh` stops what runs, and the new cluster knows nothing of the old topics."""
    old = standing(house)
    write(old, "forgotten", "x")
    new = house.json("up", "--fresh")
    assert house.servers("default") == pids(new) != pids(old)
    assert house.json("topic", "list") == []


def test_a_short_lived_cluster_is_swept_when_its_owner_was_killed(home: Home) -> None:
    """The next short-lived cluster stops and removes what a SIGKILLed program left behind."""
    with Running(
        subprocess.Popen(
            [sys.executable, "-c", OWNER],
            stdout=subprocess.PIPE,
            env=home.environment,
        ),
        ("owner",),
    ) as owner:
        assert owner.process.stdout is not None
        name = owner.process.stdout.readline().decode().strip()
        owner.process.kill()
        owner.process.wait()
    left = servers_under(home.cluster(name))
    assert len(left) == 1
    places = Places(home.path, Places.from_environment().cache)
    with LocalCluster(places=places) as next_one:
        assert not any(map(is_alive, left))
        assert not home.cluster(name).exists()
        assert len(Admin(next_one.bootstrap).brokers()) == 1
    assert home.servers() == []
    assert list((home.path / "clusters").glob("short-lived-*")) == []


@pytest.mark.parametrize(
    ("moment", "how", "status"),
    [("server.log", signal.SIGINT, 130), ("pid", signal.SIGTERM, 143)],
)
def test_a_signal_during_up_leaves_nothing_running(
    home: Home, moment: str, how: int, status: int
) -> None:
    """While the data folder is made, or the broker starts: no server, no half-made cluster."""
    with home.start("up") as call:
        eventually((home.cluster() / "broker-1" / moment).exists, "the broker has begun")
        call.process.send_signal(how)
        call.finish(status=status)
    assert home.servers() == []
    assert not home.cluster().exists()


def free_port() -> int:
    (port,) = choose_free(1, ())
    return port


def test_what_the_cluster_cannot_be_is_refused(house: Home) -> None:
    """Wrong numbers, names and ids: exit 2, and the running cluster is not touched."""
    running = pids(standing(house))
    assert "1 brokers, not 3" in house.refused(2, "up", "--brokers", "3").error
    assert "1 to 9" in house.refused(2, "up", "--brokers", "10").error
    assert "'Über'" in house.refused(2, "up", "--name", "Über").error
    assert "cannot be a cluster's name" in house.refused(2, "up", "--name", "../x").error
    assert "no broker 7" in house.refused(2, "broker", "kill", "7").error
    assert "its brokers are 1" in house.refused(2, "broker", "stop", "7").hint
    house.refused(2, "broker", "tickle", "1")
    assert pids(house.json("status")) == running
    assert [path.name for path in house.cluster().parent.glob("[!.]*")] == ["default"]


def test_a_port_in_use_is_told_and_nothing_is_left(home: Home) -> None:
    """`up --port` does not go elsewhere: exit 1, who has the port, and no cluster."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = home.refused(1, "up", "--port", port)
    assert f"port {port} is in use" in refused.error
    assert f"pid {os.getpid()}" in refused.error
    assert not home.cluster().exists()


@pytest.fixture
def dormant(home: Home) -> Home:
    """A home with a cluster that was never started: only its cluster.json."""
    home.cluster().mkdir(parents=True)
    document = {
        "layout": 1,
        "name": "default",
        "cluster_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "kafka_version": "4.3.1",
        "brokers": [{"id": 1, "port": free_port(), "controller_port": free_port()}],
        "fixed_ports": False,
        "registry_port": None,
        "connect_port": None,
        "owner": None,
    }
    (home.cluster() / "cluster.json").write_text(json.dumps(document))
    assert home.json("status")["brokers"][0]["state"] == "stopped"
    return home


def test_data_of_another_kafka_is_not_touched(dormant: Home) -> None:
    """A folder of another version: exit 1 with both versions, and the file stays as it is."""
    dormant.edit("default", kafka_version="3.9.0")
    before = (dormant.cluster() / "cluster.json").read_bytes()
    refused = dormant.refused(1, "up")
    assert "3.9.0" in refused.error
    assert "--fresh" in refused.hint
    assert (dormant.cluster() / "cluster.json").read_bytes() == before


def test_a_damaged_cluster_file_is_told(dormant: Home) -> None:
    """Not JSON, not whole, of another layout: exit 1 naming the place; nothing is overwritten."""
    path = dormant.cluster() / "cluster.json"
    for damage in (b"", b"{", b"[]", b'{"layout": 1}', b'{"layout": 99}', b"\xff"):
        path.write_bytes(damage)
        assert str(path.parent) in dormant.refused(1, "up").error
        assert path.read_bytes() == damage
    for command in ("status", "down"):
        assert str(path.parent) in dormant.refused(1, command).error
    dormant("down", "--wipe")
    assert not dormant.cluster().exists()


def test_a_home_that_is_a_file_is_told(home: Home) -> None:
    """HEADRACE_HOME names a file: exit 1 and the variable to set, for up and for status."""
    home.path.write_text("not a folder")
    assert "HEADRACE_HOME" in home.refused(1, "up").hint
    home.refused(1, "status")
    doctor = home("doctor", "-o", "json", status=1)
    wrong = [f["check"] for f in doctor.json["findings"] if not f["ok"]]
    assert "data folder" in wrong
