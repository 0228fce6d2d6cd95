"""Values to what fastavro writes, checked on the way.

fastavro itself trusts its input: 1.5 in a long becomes 1, 2^40 goes into an int, any object is a
true boolean. Here each schema becomes a tree of small functions, made once, which checks a value,
takes classes and enums apart, and names the branch of each union: about a fifth of the time of
fastavro's own validation.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from headrace.serde.defaults import default_value
from headrace.serde.scalars import (
    LOGICAL_FITS,
    PRIMITIVE_FITS,
    Fit,
    Misfit,
    enum_symbol,
    fixed_bytes,
    wrong,
)
from headrace.serde.schemas import NAMED, RECORDS, AvroSchema, branch_name, kind, logical

_MISSING = object()


def fitting(schema: AvroSchema) -> Fit:
    """The function that makes a value ready for fastavro; it raises Misfit."""
    return _Fitter(schema).of(schema.parsed)


def avro_name(cls: type) -> str:
    """The Avro name of a class that stands for a record or an enum."""
    named = getattr(cls, "__avro_name__", None)
    return str(named or cls.__name__)


@lru_cache(maxsize=1024)
def attributes(cls: type) -> tuple[tuple[str, str], ...]:
    """Avro name and Python name of each field of a dataclass."""
    return tuple(
        (field.metadata.get("avro", field.name), field.name) for field in dataclasses.fields(cls)
    )


class _Fitter:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._named: dict[str, Fit] = {}

    def of(self, schema: Any) -> Fit:
        schema = self._schema.definition(schema)
        found = kind(schema)
        if found in NAMED:
            return self._of_named(schema)
        if name := logical(schema):
            return LOGICAL_FITS[name]
        if found == "union":
            return self._of_union(schema if isinstance(schema, list) else schema["type"])
        if found == "array":
            return _array(self.of(schema["items"]))
        if found == "map":
            return _map(self.of(schema["values"]))
        return PRIMITIVE_FITS[found]

    def _of_named(self, schema: dict[str, Any]) -> Fit:
        name = schema["name"]
        if name not in self._named:
            # A record may contain itself: the name is known before what it means is.
            self._named[name] = lambda value: self._named[name](value)
            self._named[name] = self._define(schema)
        return self._named[name]

    def _define(self, schema: dict[str, Any]) -> Fit:
        if kind(schema) in RECORDS:
            return self._of_record(schema)
        if kind(schema) == "enum":
            return enum_symbol(schema)
        size = schema["size"]
        return LOGICAL_FITS[name] if (name := logical(schema)) else fixed_bytes(size)

    def _of_record(self, schema: dict[str, Any]) -> Fit:
        fields = [
            (field["name"], self.of(field["type"]), self._default(field))
            for field in schema["fields"]
        ]
        known = {name for name, _, _ in fields}
        title = schema["name"]

        def fit(value: Any) -> dict[str, Any]:
            given = value if isinstance(value, Mapping) else _take_apart(value, title)
            ready = {}
            for name, check, default in fields:
                item = given.get(name, _MISSING)
                if item is _MISSING:
                    if default is None:
                        raise Misfit("is missing and has no default").inside(name)
                    ready[name] = default()
                    continue
                try:
                    ready[name] = check(item)
                except Misfit as misfit:
                    raise misfit.inside(name) from misfit.__cause__
            if len(given) > len(fields) or not given.keys() <= known:
                raise Misfit(f"{title} has no field {min(map(str, given.keys() - known))}")
            return ready

        return fit

    def _default(self, field: dict[str, Any]) -> Callable[[], Any] | None:
        """Made when it is first needed: a record's default may contain the record."""
        if "default" not in field:
            return None

        @cache
        def make() -> Any:
            value = default_value(self._schema, field["type"], field["default"])
            return self.of(field["type"])(value)

        return make

    def _of_union(self, branches: list[Any]) -> Fit:
        kinds = {kind(self._schema.definition(branch)) for branch in branches}
        options = [(branch_name(each), self.of(each)) for each in branches if each != "null"]
        nullable = "null" in branches
        described = " or ".join(branch_name(each) for each in branches)

        def fit(value: Any) -> Any:
            if value is None and nullable:
                return None
            cls = type(value)
            by_class = dataclasses.is_dataclass(cls) or issubclass(cls, enum.Enum)
            misfits = []
            for name, check in _sorted(options, cls) if by_class else options:
                if _another_is_better(name, cls, kinds):
                    continue
                try:
                    return (name, check(value))
                except Misfit as misfit:
                    misfits.append(misfit)
            # With one candidate its own complaint says most, such as which field is wrong.
            raise misfits[0] if len(misfits) == 1 and misfits[0].path else wrong(described, value)

        return fit


def _sorted(options: list[tuple[str, Fit]], cls: type) -> list[tuple[str, Fit]]:
    """The branch that a class stands for comes first."""
    wanted = avro_name(cls)
    return sorted(options, key=lambda each: wanted not in (each[0], each[0].rpartition(".")[2]))


def _another_is_better(name: str, cls: type, kinds: set[str]) -> bool:
    """Whole numbers stay whole, and floating-point ones exact, where the union lets them."""
    if cls is int:
        return name in ("float", "double") and not kinds.isdisjoint(("int", "long"))
    return name == "float" and "double" in kinds


def _take_apart(value: Any, title: str) -> dict[str, Any]:
    cls = type(value)
    if not dataclasses.is_dataclass(cls):
        raise wrong(f"{title} (a dict or a dataclass)", value)
    return {name: getattr(value, attribute) for name, attribute in attributes(cls)}


def _array(item: Fit) -> Fit:
    def fit(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise wrong("a list", value)
        ready = []
        for index, each in enumerate(value):
            try:
                ready.append(item(each))
            except Misfit as misfit:
                raise misfit.inside(f"[{index}]") from misfit.__cause__
        return ready

    return fit


def _map(item: Fit) -> Fit:
    def fit(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise wrong("a dict", value)
        ready = {}
        for key, each in value.items():
            if not isinstance(key, str):
                raise wrong("text as a key", key)
            try:
                ready[key] = item(each)
            except Misfit as misfit:
                raise misfit.inside(f"[{key!r}]") from misfit.__cause__
        return ready

    return fit
