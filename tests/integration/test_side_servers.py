"""The schema registry and the Connect worker beside a cluster, in one story: they start slowly."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.clients import Admin
from support.home import Home
from support.http import call
from support.processes import kill
from support.waiting import eventually

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, dict[str, Any]]]:
    """A cluster with registry and Connect, and what `up` said about it."""
    home = Home(tmp_path_factory.mktemp("side"))
    try:
        yield home, home.json("up", "--registry", "--connect")
    finally:
        home.close()


def register(registry: str, subject: str, *fields: str) -> int:
    """Register an Avro record schema; returns its id."""
    schema = {
        "type": "record",
        "name": subject,
        "fields": [{"name": name, "type": "string"} for name in fields],
    }
    answer = call(f"{registry}/subjects/{subject}-value/versions", {"schema": json.dumps(schema)})
    return int(answer["id"])


def field_names(registry: str, schema_id: int) -> list[str]:
    schema = json.loads(call(f"{registry}/schemas/ids/{schema_id}")["schema"])
    return [field["name"] for field in schema["fields"]]


def service(status: dict[str, Any], node: str) -> dict[str, Any]:
    (found,) = [s for s in status["services"] if s["node"] == node]
    return dict(found)


def test_up_returns_when_registry_and_connect_answer(side: tuple[Home, dict[str, Any]]) -> None:
    """Both addresses stand in the result, and both serve at once."""
    home, status = side
    assert call(f"{status['registry']}/subjects") == []
    assert call(f"{status['connect']}/connectors") == []
    assert {s["node"]: s["state"] for s in status["services"]} == {
        "registry": "running",
        "connect": "running",
    }
    pids = [s["pid"] for s in (*status["services"], *status["brokers"])]
    assert sorted(pids) == home.servers()


def test_a_file_source_fills_a_topic(side: tuple[Home, dict[str, Any]], tmp_path: Path) -> None:
    """A connector posted to the worker carries a file's lines into a topic."""
    home, status = side
    source = tmp_path / "lines.txt"
    source.write_text("first\nsecond\n")
    Admin(status["bootstrap"]).create_topic("lines")
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": "lines",
    }
    call(f"{status['connect']}/connectors", {"name": "file-source", "config": config})

    def arrived() -> list[str]:
        return [json.loads(r["value"]) for r in home.json("consume", "lines")]

    eventually(lambda: len(arrived()) == 2, "both lines are in the topic", every=0.3)
    assert arrived() == ["first", "second"]


def test_the_registry_is_what_confluents_client_expects(
    side: tuple[Home, dict[str, Any]],
) -> None:
    """Their SchemaRegistryClient registers a schema and finds it again by id and by subject."""
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    client = SchemaRegistryClient({"url": side[1]["registry"]})
    schema = Schema('{"type": "record", "name": "Click", "fields": []}', "AVRO")
    schema_id = client.register_schema("clicks-value", schema)
    assert json.loads(client.get_schema(schema_id).schema_str)["name"] == "Click"
    assert client.get_latest_version("clicks-value").schema_id == schema_id
    assert "clicks-value" in client.get_subjects()


def test_a_schema_survives_the_death_of_the_registry(side: tuple[Home, dict[str, Any]]) -> None:
    """SIGKILL right after the answer: `up` starts the registry alone, and the schema is there."""
    home, status = side
    schema_id = register(status["registry"], "orders", "id", "amount")
    kill([psutil.Process(service(status, "registry")["pid"])])
    assert service(home.json("status"), "registry")["state"] == "stopped"
    again = home.json("up")
    assert again["brokers"][0]["pid"] == status["brokers"][0]["pid"]
    assert service(again, "connect")["pid"] == service(status, "connect")["pid"]
    assert field_names(again["registry"], schema_id) == ["id", "amount"]


@pytest.mark.long(25)
def test_schemas_and_connectors_survive_down_and_up(side: tuple[Home, dict[str, Any]]) -> None:
    """Registry and Connect belong to the cluster: `up` alone brings them back as they were."""
    home, status = side
    schema_id = register(status["registry"], "payments", "iban")
    home("down", seconds=30)
    assert home.servers() == []
    again = home.json("up")
    assert again["registry"] == status["registry"]
    assert again["connect"] == status["connect"]
    assert field_names(again["registry"], schema_id) == ["iban"]
    eventually(
        lambda: call(f"{again['connect']}/connectors") == ["file-source"],
        "the connector is known again",
    )
