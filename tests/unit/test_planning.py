"""What `up` settles on: what was asked for, on ports that can be used, or a clear refusal."""

import contextlib
import socket

import pytest

from headrace.errors import BadInput, ForeignData, PortInUse
from headrace.local import ports
from headrace.local.planning import Plan
from headrace.local.processes import mark
from headrace.local.spec import KAFKA_VERSION, BrokerSpec, ClusterSpec, new_cluster_id


@pytest.fixture(autouse=True)
def quick_refusal(monkeypatch):
    monkeypatch.setattr(ports, "SECONDS_TO_LET_GO", 0)


@pytest.fixture
def plan(tmp_path, progress):
    def make(**wishes) -> Plan:
        defaults = {
            "name": "x",
            "folder": tmp_path / "x",
            "brokers": None,
            "port": None,
            "registry": False,
            "connect": False,
            "short_lived": False,
            "taken": set(),
            "progress": progress,
        }
        return Plan(**(defaults | wishes))

    return make


def existing(**changes) -> ClusterSpec:
    first, second = ports.choose_free(2, ())
    spec = ClusterSpec("x", new_cluster_id(), KAFKA_VERSION, (BrokerSpec(1, first, second),))
    return spec.with_(**changes)


@contextlib.contextmanager
def listening(port: int):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield


def consecutive_free(count: int) -> int:
    return next(
        port for port in range(12_000, 19_000) if all(ports.is_free(port + n) for n in range(count))
    )


# --- a new cluster ---


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_a_new_cluster_has_the_brokers_asked_for_each_on_ports_of_its_own(plan, count):
    spec = plan(brokers=count).settle(None)
    assert [broker.id for broker in spec.brokers] == list(range(1, count + 1))
    assert len(set(spec.ports)) == len(spec.ports)
    assert all(ports.is_free(port) for port in spec.ports)
    assert spec.kafka_version == KAFKA_VERSION
    assert spec.owner is None


def test_a_new_cluster_has_one_broker_unless_asked_otherwise(plan):
    assert len(plan().settle(None).brokers) == 1


def test_given_ports_are_consecutive_and_fixed(plan):
    port = consecutive_free(3)
    spec = plan(brokers=3, port=port).settle(None)
    assert [broker.port for broker in spec.brokers] == [port, port + 1, port + 2]
    assert spec.fixed_ports


def test_a_given_port_in_use_is_refused(plan):
    port = consecutive_free(2)
    with listening(port + 1), pytest.raises(PortInUse) as caught:
        plan(brokers=2, port=port).settle(None)
    assert caught.value.facts["port"] == port + 1


def test_ports_of_other_clusters_are_left_to_them(plan):
    taken = set(range(9092, 9101))
    assert not taken & set(plan(brokers=3, taken=taken).settle(None).ports)


def test_a_short_lived_cluster_belongs_to_this_process(plan):
    owner = plan(short_lived=True).settle(None).owner
    assert owner is not None
    assert owner.pid > 0


# --- an existing one ---


def test_an_existing_cluster_stays_as_it_is(plan):
    spec = existing()
    assert plan().settle(spec) == spec
    assert plan(brokers=1).settle(spec) == spec


def test_another_number_of_brokers_is_refused(plan):
    with pytest.raises(BadInput, match="has 1 brokers, not 3") as caught:
        plan(brokers=3).settle(existing())
    assert "--fresh" in caught.value.hint


def test_data_of_another_kafka_is_refused(plan):
    with pytest.raises(ForeignData):
        plan().settle(existing(kafka_version="3.9.0"))


def test_a_stranger_on_a_chosen_port_makes_the_cluster_move_with_a_warning(plan, progress):
    spec = existing()
    port = spec.brokers[0].port
    with listening(port):
        moved = plan().settle(spec)
        assert all(ports.is_free(each) for each in moved.ports)
    assert port not in moved.ports
    assert moved.cluster_id == spec.cluster_id
    assert not moved.fixed_ports
    assert progress.warnings == [
        f"port {port} is in use by somebody else, the cluster moves to other ports"
    ]


def test_a_stranger_on_a_fixed_port_is_an_error_that_names_the_port(plan, progress):
    spec = existing(fixed_ports=True)
    port = spec.brokers[0].port
    with listening(port), pytest.raises(PortInUse, match=f"port {port} is in use"):
        plan().settle(spec)
    assert progress.warnings == []


def test_a_stopped_cluster_moves_on_request_and_its_ports_are_fixed_from_then_on(plan):
    port = consecutive_free(1)
    moved = plan(port=port).settle(existing())
    assert moved.brokers[0].port == port
    assert moved.fixed_ports


def test_a_port_that_leaves_no_room_for_all_brokers_is_refused(plan):
    brokers = tuple(BrokerSpec(n, port, None) for n, port in enumerate(ports.choose_free(3, ()), 1))
    with pytest.raises(BadInput, match="cannot be the first of 3 ports"):
        plan(port=65_535).settle(existing(brokers=brokers))


def test_a_running_cluster_keeps_its_ports_though_it_listens_on_them(plan, run_marked):
    spec = existing()
    run_marked(mark(spec.cluster_id, "broker-1"))
    with listening(spec.brokers[0].port):
        assert plan().settle(spec) == spec


def test_a_running_cluster_does_not_move(plan, run_marked):
    spec = existing()
    run_marked(mark(spec.cluster_id, "broker-1"))
    with pytest.raises(BadInput, match="runs on port") as caught:
        plan(port=consecutive_free(1)).settle(spec)
    assert "headrace down" in caught.value.hint


def test_the_port_of_a_dead_broker_of_a_running_cluster_must_be_free(plan, run_marked):
    first, second = ports.choose_free(2, ())
    spec = existing(brokers=(BrokerSpec(1, first, None), BrokerSpec(2, second, None)))
    run_marked(mark(spec.cluster_id, "broker-1"))
    with listening(second), pytest.raises(PortInUse):
        plan().settle(spec)


# --- registry and Connect ---


def test_registry_and_connect_get_ports_only_when_wanted(plan):
    plain = plan().settle(None)
    assert (plain.registry_port, plain.connect_port) == (None, None)
    both = plan(registry=True, connect=True).settle(None)
    assert both.registry_port
    assert both.connect_port
    assert len(set(both.ports)) == len(both.ports)


def test_a_registry_once_wanted_belongs_to_the_cluster(plan):
    (port,) = ports.choose_free(1, ())
    assert plan().settle(existing(registry_port=port)).registry_port == port


def test_a_registry_moves_when_a_stranger_took_its_port(plan):
    (port,) = ports.choose_free(1, ())
    with listening(port):
        assert plan().settle(existing(registry_port=port)).registry_port != port


def test_a_running_registry_keeps_its_port(plan, run_marked):
    (port,) = ports.choose_free(1, ())
    spec = existing(registry_port=port)
    run_marked(mark(spec.cluster_id, "registry"))
    with listening(port):
        assert plan().settle(spec).registry_port == port


def test_registry_and_connect_never_share_the_last_free_port(plan, monkeypatch):
    spec = existing()
    first, second = ports.choose_free(2, spec.ports)
    monkeypatch.setattr(ports, "_FREE_RANGE", (first, second))
    usual = {ports.USUAL_REGISTRY_PORT, ports.USUAL_CONNECT_PORT}
    for _ in range(10):
        ports.release([first, second])
        settled = plan(registry=True, connect=True, taken=usual).settle(spec)
        assert {settled.registry_port, settled.connect_port} == {first, second}


def test_a_registry_gives_way_when_the_brokers_are_moved_onto_its_port(plan):
    port = consecutive_free(1)
    moved = plan(port=port).settle(existing(registry_port=port))
    assert moved.brokers[0].port == port
    assert moved.registry_port != port
