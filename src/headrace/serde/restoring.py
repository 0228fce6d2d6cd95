"""What fastavro read, as classes, and with defaults that are whole values.

fastavro fills a field that old records lack with the default as it stands in the schema: one list
for all records, text for bytes, a number for a timestamp. So the reader's schema is given to it
with a mark in place of each such default, and the mark becomes a new value here.
"""

import copy
import dataclasses
import enum
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from headrace.errors import BadInput
from headrace.serde.defaults import default_value, is_plain
from headrace.serde.fitting import attributes, avro_name
from headrace.serde.schemas import NAMED, RECORDS, AvroSchema, branch_name, kind, load_schema

Restore = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class _Mark:
    """Stands in a reader's schema for a default."""

    make: Callable[[], Any]

    def __deepcopy__(self, memo: object) -> "_Mark":
        return self


def marked(schema: AvroSchema) -> tuple[Any, bool]:
    """The reader's schema for fastavro, and whether marks may come out of it."""
    twin = AvroSchema(schema.source, *copy.deepcopy((schema.parsed, dict(schema.named))))
    found = False
    for record in (each for each in twin.types() if kind(each) in RECORDS):
        for field in record["fields"]:
            if "default" in field and not _is_right(schema, field):
                make = partial(default_value, schema, field["type"], field["default"])
                field["default"] = _Mark(make)
                found = True
    return twin.parsed, found


def restoring(schema: AvroSchema, classes: Mapping[str, type]) -> Restore:
    """The function for what was read with names in unions (`return_named_type`)."""
    return _Restorer(schema, classes).of(schema.parsed) or _unwrapped


def classes_of(cls: type) -> dict[str, type]:
    """A class and the records and enums that its fields lead to, by their Avro names."""
    found = {load_schema(cls).name: cls}
    waiting, seen = [cls], {cls}
    while waiting:
        for each in _mentioned(waiting.pop()):
            if each not in seen:
                seen.add(each)
                waiting.append(each)
                found.setdefault(avro_name(each), each)
    return found


class _Restorer:
    def __init__(self, schema: AvroSchema, classes: Mapping[str, type]) -> None:
        self._schema = schema
        self._classes = classes
        self._named: dict[str, Restore] = {}

    def of(self, schema: Any) -> Restore | None:
        """None if there is nothing to do."""
        schema = self._schema.definition(schema)
        found = kind(schema)
        if found in NAMED:
            return self._of_named(schema)
        if found == "union":
            return self._of_union(schema if isinstance(schema, list) else schema["type"])
        if found == "array" and (inner := self.of(schema["items"])):
            return partial(_each, inner)
        if found == "map" and (inner := self.of(schema["values"])):
            return partial(_each_value, inner)
        return None

    def _class(self, name: str) -> type | None:
        return self._classes.get(name) or self._classes.get(name.rpartition(".")[2])

    def _of_named(self, schema: dict[str, Any]) -> Restore:
        name = schema["name"]
        if name not in self._named:
            # A record may contain itself: the name is known before what it means is.
            self._named[name] = lambda value: self._named[name](value)
            self._named[name] = self._define(schema)
        return self._named[name]

    def _define(self, schema: dict[str, Any]) -> Restore:
        cls = self._class(schema["name"])
        if kind(schema) in RECORDS:
            return self._of_record(schema, cls)
        if kind(schema) == "enum" and cls is not None:
            return lambda value: cls(_unwrapped(value))
        return _unwrapped

    def _of_record(self, schema: dict[str, Any], cls: type | None) -> Restore:
        python_names = dict(attributes(cls)) if cls is not None else {}
        fields = [
            (name := field["name"], python_names.get(name, name), self.of(field["type"]))
            for field in schema["fields"]
        ]

        def restore(value: Any) -> Any:
            given = _unwrapped(value)
            ready = {}
            for name, attribute, inner in fields:
                item = given[name]
                if type(item) is _Mark:
                    item = item.make()
                ready[attribute] = item if inner is None else inner(item)
            return ready if cls is None else cls(**ready)

        return restore

    def _of_union(self, branches: list[Any]) -> Restore | None:
        by_name: dict[str | None, Restore | None] = {
            branch_name(branch): self.of(branch) for branch in branches
        }
        if not any(by_name.values()):
            return None
        by_shape = _Shapes(self._schema, branches)

        def restore(value: Any) -> Any:
            name = value[0] if type(value) is tuple else by_shape.name_of(value)
            inner = by_name.get(name)
            return _unwrapped(value) if inner is None else inner(value)

        return restore


class _Shapes:
    """Finds the branch of a union by the value alone: defaults and old writers name none."""

    def __init__(self, schema: AvroSchema, branches: list[Any]) -> None:
        defined = [schema.definition(branch) for branch in branches]
        kinds = {kind(each): branch_name(each) for each in defined}
        self._map = kinds.get("map")
        self._array = kinds.get("array")
        self._enum = kinds.get("enum") if "string" not in kinds else None
        self._records = {
            frozenset(field["name"] for field in each["fields"]): each["name"]
            for each in defined
            if kind(each) in RECORDS
        }

    def name_of(self, value: Any) -> str | None:
        if isinstance(value, dict):
            return self._records.get(frozenset(value), self._map)
        if isinstance(value, list):
            return self._array
        return self._enum if isinstance(value, str) else None


def _unwrapped(value: Any) -> Any:
    """Without the name that fastavro adds where the writer's schema had a union."""
    return value[1] if type(value) is tuple else value


def _each(inner: Restore, value: list[Any]) -> list[Any]:
    return [inner(item) for item in value]


def _each_value(inner: Restore, value: dict[str, Any]) -> dict[str, Any]:
    return {key: inner(item) for key, item in value.items()}


def _is_right(schema: AvroSchema, field: dict[str, Any]) -> bool:
    """Whether the default can be handed out as it stands in the schema."""
    value = default_value(schema, field["type"], field["default"])
    return is_plain(value) and type(value) is type(field["default"])


def _mentioned(cls: type) -> Iterator[type]:
    """The dataclasses and enums in a dataclass's annotations."""
    if not dataclasses.is_dataclass(cls):
        return
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        raise BadInput(
            f"the annotations of {cls.__name__} cannot be read: {error}",
            hint="define the classes it mentions at the top of a module",
        ) from error
    waiting = list(hints.values())
    while waiting:
        hint = waiting.pop()
        waiting.extend(typing.get_args(hint))
        if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or _is_enum(hint)):
            yield hint


def _is_enum(hint: type) -> bool:
    return issubclass(hint, enum.Enum)
