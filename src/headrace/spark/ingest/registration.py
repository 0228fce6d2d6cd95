"""The schema of Avro values: made known to the registry once, before anything is sent."""

from dataclasses import dataclass

from headrace.clients import Connection
from headrace.clients.registries import registry_of
from headrace.serde.avro import wire_header
from headrace.spark.ingest.avro_schema import avro_of
from headrace.spark.ingest.schema import RowSchema


@dataclass(frozen=True)
class Registered:
    """A schema as the registry knows it, and what each value begins with."""

    text: str
    header: bytes


def register(rows: RowSchema, topic: str, connection: Connection) -> Registered:
    """Make the schema of a topic's values the newest of its subject; again is harmless."""
    registry = registry_of(connection)
    schema = avro_of(rows)
    try:
        stored = registry.register(f"{topic}-value", schema)
    finally:
        registry.close()
    return Registered(schema.text, wire_header(stored.id))
