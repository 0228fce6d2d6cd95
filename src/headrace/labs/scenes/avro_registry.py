"""A schema grows and breaks no program: old and new readers agree, a breaking change is refused.

`Alert` records go through the schema registry, which gives each schema an id that every record
carries. Then the schema gets a field with a default. Programs made before and after it read each
other's records, with Python classes written from the schemas; a reader that is not Headrace's
reads the same values. Changes that would break a reader are refused before a byte is written.
"""

import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from headrace.clients import Producer
from headrace.clients.registries import registry_of
from headrace.errors import IncompatibleSchema
from headrace.labs.stage import Stage
from headrace.model import Latest, Record, TopicPartition
from headrace.serde import Avro, Field, Registry, StoredSchema
from headrace.serde.registry import AUTH_VARIABLE
from headrace.serde.registry_client import make_client
from headrace.services.schemas import classes_from

NEEDS_REGISTRY = True
Schema = dict[str, Any]
STATUSES = ("Critical", "Major", "Minor", "Warning")
SENSOR = {"name": "sensor_id", "type": "long", "doc": "The sensor that spoke."}
TIME = {"name": "time", "type": "long", "doc": "When it spoke, in ms since 1970 (UTC)."}
STATUS = {
    "name": "status",
    "type": {
        "type": "enum",
        "name": "Status",
        "symbols": list(STATUSES),
        "doc": "How bad it is, the worst first.",
    },
    "doc": "The level of the alert.",
}
BIKE = {"name": "bike", "type": "string", "doc": "The e-bike it is on.", "default": "unknown"}
WITHOUT_DEFAULT = {name: value for name, value in BIKE.items() if name != "default"}


def alert_schema(*fields: Schema) -> Schema:
    doc = "What a sensor of an e-bike reports."
    return {"type": "record", "name": "Alert", "doc": doc, "fields": list(fields)}


FIRST = alert_schema(SENSOR, TIME, STATUS)
SECOND = alert_schema(SENSOR, TIME, STATUS, BIKE)
# What somebody asks for: where in the schema, the schema, and a record that would come of it.
BREAKING: dict[str, tuple[str, Schema, dict[str, Any]]] = {
    "a new field without a default": (
        "/fields/3",
        alert_schema(SENSOR, TIME, STATUS, WITHOUT_DEFAULT),
        {"sensor_id": 1, "time": 1, "status": "Minor", "bike": "b-1"},
    ),
    "a field taken away": (
        *("/fields/1", alert_schema(SENSOR, STATUS)),
        {"sensor_id": 1, "status": "Minor"},
    ),
    "a number that becomes text": (
        "/fields/1",
        alert_schema(SENSOR, TIME | {"type": "string"}, STATUS),
        {"sensor_id": 1, "time": "noon", "status": "Minor"},
    ),
}


class Program:
    """A program of its time: it has the classes of one schema, and knows of no other."""

    def __init__(self, schema: Schema, registry: Registry, folder: Path, name: str) -> None:
        file, module = folder / f"{name}.avsc", folder / f"{name}.py"
        file.write_bytes(orjson.dumps(schema))
        classes_from(file, module)  # headrace schema classes NAME.avsc --out NAME.py
        self.classes = imported(module)
        self.serde: Avro[Any] = Avro(self.classes.Alert, registry)

    def alert(self, number: int, status: str, **more: str) -> Any:
        return self.classes.Alert(
            sensor_id=1_000_000_000_000 + number,
            time=1_570_000_000_000 + number,
            status=self.classes.Status(status),
            **more,
        )

    def send(self, stage: Stage, topic: str, alerts: Sequence[Any]) -> None:
        with Producer(stage.connection, value=self.serde) as producer:
            for alert in alerts:
                producer.send(topic, alert)

    def read(self, records: Sequence[Record]) -> list[Any]:
        return [
            self.serde.decode(r.value, Field(r.topic, "value", r.partition, r.offset))
            for r in records
        ]


def imported(file: Path) -> ModuleType:
    """A module from a file, for this lab alone: nothing else can import it by its name."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(stage: Stage) -> None:
    topic = stage.topic("kinaction_alert_avro")
    subject = f"{topic}-value"
    registry = registry_of(stage.connection)
    # Their client is for their deserializer, and because ours cannot delete a subject.
    client = make_client(registry.url, os.environ.get(AUTH_VARIABLE), registry.timeout)
    try:
        with tempfile.TemporaryDirectory() as folder:
            old = Program(FIRST, registry, Path(folder), "alerts_first")
            new = Program(SECOND, registry, Path(folder), "alerts_second")
        act_out(stage, topic, registry, client, old, new)
    finally:
        registry.close()
        with contextlib.suppress(Exception):  # the outcome is known; this is only tidying
            client.delete_subject(subject)
            client.delete_subject(subject, permanent=True)


def act_out(
    stage: Stage, topic: str, registry: Registry, client: Any, old: Program, new: Program
) -> None:
    subject = f"{topic}-value"
    early = list(enumerate(STATUSES))
    late = list(enumerate(STATUSES, len(STATUSES)))
    stage.say("the old program sends alerts")
    old.send(stage, topic, [old.alert(number, status) for number, status in early])
    # From now on the registry takes what both older and newer readers can read.
    registry.set_compatibility("FULL", subject)
    stage.say("somebody tries changes that would break readers")
    refusals = try_breaking_changes(stage, topic, registry)
    stage.say("the new program sends alerts with one field more")
    new.send(stage, topic, [new.alert(number, status, bike="b-17") for number, status in late])

    records = stage.records(topic)
    stored = [registry.get(subject, version) for version in registry.versions(subject)]
    judge_schemas(stage, stored, refusals, records)
    seen_by_old, seen_by_new = old.read(records), new.read(records)
    theirs = read_by_confluents(client, records)
    tell_records(stage, records, seen_by_old, seen_by_new, theirs)
    stage.check(
        "the old program reads new records, without the field it does not know",
        seen_by_old == [old.alert(number, status) for number, status in early + late],
    )
    stage.check(
        "the new program reads old records, with the default in the new field",
        seen_by_new
        == [new.alert(number, status, bike="unknown") for number, status in early]
        + [new.alert(number, status, bike="b-17") for number, status in late],
    )
    stage.check(
        "Confluent's deserializer reads the same values",
        theirs == [asdict(alert) for alert in seen_by_new] != [],
    )


def try_breaking_changes(stage: Stage, topic: str, registry: Registry) -> dict[str, str]:
    """What the registry had against each change; the promise is that it had something."""
    subject = f"{topic}-value"
    before = end_of(stage, topic), registry.versions(subject)
    answers: dict[str, str] = {}
    named = []
    for change, (place, schema, record) in BREAKING.items():
        answers[change] = "taken"
        try:
            with Producer(stage.connection, value=Avro(schema, registry)) as producer:
                producer.send(topic, record)
        except IncompatibleSchema as error:
            answers[change] = f"refused: {'; '.join(error.facts['reasons'])}"
            named.append(place in error.message)
    stage.check("each breaking change is refused", "taken" not in answers.values())
    stage.check("each refusal says which field", named == [True] * len(BREAKING))
    after = end_of(stage, topic), registry.versions(subject)
    stage.check("nothing is written or registered by them", after == before == (len(STATUSES), [1]))
    return answers


def end_of(stage: Stage, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return stage.admin.offsets([partition], Latest())[partition]


def schema_id(record: Record) -> int:
    """A record's value begins with a zero byte and the four bytes of its schema's id."""
    return int.from_bytes((record.value or b"")[1:5], "big")


def read_by_confluents(client: Any, records: Sequence[Record]) -> list[Any]:
    """The same bytes by Confluent's own deserializer, to the second schema."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    settings = {"subject.name.strategy.type": "TOPIC"}
    decode = AvroDeserializer(client, orjson.dumps(SECOND).decode(), conf=settings)
    return [decode(r.value, SerializationContext(r.topic, MessageField.VALUE)) for r in records]


def judge_schemas(
    stage: Stage, stored: Sequence[StoredSchema], refusals: dict[str, str], records: list[Record]
) -> None:
    changes = ("none: the first schema", "a new field with a default")
    taken = [
        {"change": change, "version": each.version, "id": each.id, "the registry's answer": "taken"}
        for change, each in zip(changes, stored, strict=False)
    ]
    refused = [
        {"change": change, "version": None, "id": None, "the registry's answer": answer}
        for change, answer in refusals.items()
    ]
    stage.fact("schemas", taken[:1] + refused + taken[1:])
    stage.check(
        "the registry keeps both schemas, with their docs",
        [orjson.loads(each.text) for each in stored] == [FIRST, SECOND],
    )
    stage.check(
        "each record carries the id of its schema",
        [schema_id(record) for record in records] == [each.id for each in stored for _ in STATUSES],
    )


def tell_records(
    stage: Stage, records: Sequence[Record], old: list[Any], new: list[Any], theirs: list[Any]
) -> None:
    table = [
        {
            "offset": record.offset,
            "schema id": schema_id(record),
            "bytes": len(record.value or b""),
            "status": str(by_old.status),
            "bike, old program": getattr(by_old, "bike", None),
            "bike, new program": by_new.bike,
            "bike, Confluent's": by_theirs["bike"],
        }
        for record, by_old, by_new, by_theirs in zip(records, old, new, theirs, strict=True)
    ]
    stage.fact("records", table)
