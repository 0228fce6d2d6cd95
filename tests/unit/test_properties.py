"""The settings of 1 to 9 brokers fit together."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.local.properties import (
    broker_properties,
    connect_properties,
    log_properties,
    registry_options,
    render,
)
from headrace.local.spec import BrokerSpec, ClusterSpec, controller_count

COUNTS = range(1, 10)


def cluster_of(count: int) -> ClusterSpec:
    voters = controller_count(count)
    brokers = tuple(
        BrokerSpec(n, 9091 + n, 20_000 + n if n <= voters else None) for n in range(1, count + 1)
    )
    return ClusterSpec("x", "id", "1", brokers, registry_port=8081, connect_port=8083)


def settings_of(count: int) -> list[dict[str, str | int]]:
    spec = cluster_of(count)
    return [broker_properties(spec, broker, Path("/data")) for broker in spec.brokers]


@pytest.mark.parametrize("count", COUNTS)
def test_all_brokers_agree_on_the_voters_and_each_voter_is_a_controller(count):
    settings = settings_of(count)
    (voters,) = {str(broker["controller.quorum.voters"]) for broker in settings}
    controllers = {
        f"{broker['node.id']}@{str(broker['listeners']).partition('CONTROLLER://')[2]}"
        for broker in settings
        if broker["process.roles"] == "broker,controller"
    }
    assert set(voters.split(",")) == controllers
    assert len(controllers) == controller_count(count)


@pytest.mark.parametrize("count", COUNTS)
def test_every_port_is_listened_on_once(count):
    listeners = [
        part for broker in settings_of(count) for part in str(broker["listeners"]).split(",")
    ]
    ports = [int(part.rpartition(":")[2]) for part in listeners]
    assert len(set(ports)) == len(ports)
    brokers = cluster_of(count).brokers
    assert sorted(ports) == sorted(port for broker in brokers for port in broker.ports)


@pytest.mark.parametrize("count", COUNTS)
def test_brokers_listen_on_this_machine_only(count):
    for broker in settings_of(count):
        for listener in str(broker["listeners"]).split(","):
            assert "://127.0.0.1:" in listener


@pytest.mark.parametrize("count", COUNTS)
def test_one_broker_of_three_or_more_may_die_and_writes_go_on(count):
    for broker in settings_of(count):
        copies, in_sync = broker["default.replication.factor"], broker["min.insync.replicas"]
        assert copies == min(3, count)
        assert in_sync == (2 if count >= 3 else 1)
        assert broker["offsets.topic.replication.factor"] == copies
        assert broker["transaction.state.log.replication.factor"] == copies
        assert broker["transaction.state.log.min.isr"] == in_sync
        assert broker["share.coordinator.state.topic.replication.factor"] == copies
        assert broker["share.coordinator.state.topic.min.isr"] == in_sync


def test_each_broker_has_an_id_and_a_rack_of_its_own():
    settings = settings_of(9)
    assert [broker["node.id"] for broker in settings] == list(range(1, 10))
    assert len({broker["broker.rack"] for broker in settings}) == 9


def test_a_consumer_is_served_by_the_copy_in_its_rack():
    for broker in settings_of(3):
        assert str(broker["replica.selector.class"]).endswith(".RackAwareReplicaSelector")


def test_a_topic_is_never_made_by_a_typo():
    assert settings_of(1)[0]["auto.create.topics.enable"] == "false"


def java_reads(text: str) -> str:
    return text.replace("\\\\", "\\")


@given(value=st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])))
def test_a_rendered_value_is_read_back_by_java_as_it_was(value):
    name, _, rendered = render({"key": value}).rstrip("\n").partition("=")
    assert name == "key"
    assert java_reads(rendered) == value


def test_every_property_is_a_line_of_its_own():
    assert render({"a": 1, "b": "x"}) == "a=1\nb=x\n"


def test_connect_keeps_its_state_with_the_copies_the_cluster_has():
    for count in COUNTS:
        settings = connect_properties(cluster_of(count), Path("/plugins"))
        assert settings["config.storage.replication.factor"] == min(3, count)
        assert settings["offset.storage.replication.factor"] == min(3, count)
        assert settings["status.storage.replication.factor"] == min(3, count)
        assert settings["listeners"] == "http://127.0.0.1:8083"


def test_the_registry_listens_on_its_port_of_this_machine_and_flushes_each_commit():
    options = registry_options(cluster_of(1), Path("/data/registry"))
    assert "-Dquarkus.http.host=127.0.0.1" in options
    assert "-Dquarkus.http.port=8081" in options
    assert any(
        "jdbc:h2:file:/data/registry" in each and "WRITE_DELAY=0" in each for each in options
    )


def test_a_servers_log_is_bounded():
    settings = log_properties(Path("/data/server.log"))
    assert settings["appender.file.fileName"] == "/data/server.log"
    assert settings["appender.file.policies.size.size"] == "10MB"
    assert settings["appender.file.strategy.max"] == 2
