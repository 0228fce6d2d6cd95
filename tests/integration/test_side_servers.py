"""The schema registry and the Connect worker beside a cluster: real, and persistent."""

import json
import urllib.request

import psutil
import pytest

import headrace as hr
from headrace.local import LocalCluster
from support.waiting import eventually


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(1, registry=True, connect=True) as both:
        yield both


def call(address: str, body: dict | None = None):
    request = urllib.request.Request(
        address,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read())


def pid_of(cluster: LocalCluster, node: str) -> int:
    (pid,) = [s.pid for s in cluster.status().services if s.node == node]
    return pid


def test_a_schema_survives_the_registrys_sudden_death_and_an_orderly_restart(cluster):
    schema = {"schema": '{"type": "string"}'}
    first = call(f"{cluster.registry}/subjects/alerts-value/versions", schema)["id"]
    psutil.Process(pid_of(cluster, "registry")).kill()
    cluster.up()
    assert call(f"{cluster.registry}/schemas/ids/{first}")["schema"]
    cluster.down()
    cluster.up()
    assert call(f"{cluster.registry}/subjects") == ["alerts-value"]


def test_a_file_flows_through_connect_into_a_topic(cluster, tmp_path):
    source = tmp_path / "alert.txt"
    source.write_text("one\ntwo\n")
    hr.Admin(cluster.bootstrap).create_topic("alert-connect")
    call(
        f"{cluster.connect}/connectors",
        {
            "name": "alerts",
            "config": {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "file": str(source),
                "topic": "alert-connect",
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            },
        },
    )

    def lines() -> list[bytes | None]:
        with hr.Reader("alert-connect", connection=cluster.bootstrap) as reader:
            return [record.value for batch in reader.batches() for record in batch]

    eventually(lambda: lines() == [b"one", b"two"], "both lines are in the topic", 60, 0.5)
