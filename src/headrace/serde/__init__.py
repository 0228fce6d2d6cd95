"""Bytes to objects and back: text, numbers, JSON, Avro with a schema registry, your own."""

from headrace.serde.avro import Avro
from headrace.serde.base import Field, Serde
from headrace.serde.json import Json
from headrace.serde.primitives import Bytes, Double, Int, Long, Text
from headrace.serde.registry import Registry, StoredSchema, Verdict

__all__ = [
    "Avro",
    "Bytes",
    "Double",
    "Field",
    "Int",
    "Json",
    "Long",
    "Registry",
    "Serde",
    "StoredSchema",
    "Text",
    "Verdict",
]
