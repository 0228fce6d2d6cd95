"""Avro: bare bodies, or the Confluent wire format with a schema registry.

The wire format is a zero byte, the schema's id in four bytes (big-endian), and the body. Reading
takes the writer's schema from the registry by that id, once, and resolves to one's own.
"""

import io
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Literal, TypeVar, overload

from headrace.errors import BadInput, ConfigError, SchemaNotFound
from headrace.serde.base import Field, Serde
from headrace.serde.defaults import check_defaults
from headrace.serde.fitting import fitting
from headrace.serde.registry import Registry
from headrace.serde.restoring import classes_of, marked, restoring
from headrace.serde.scalars import Misfit
from headrace.serde.schemas import AvroSchema, fastavro, load_schema

T = TypeVar("T")
SchemaSource = Mapping[str, Any] | list[Any] | str | PathLike[str]
SubjectStrategy = Literal["topic", "record", "topic-record"] | Callable[[Field, str], str]

_MAGIC = b"\x00"
_HEADER = 5
_STRATEGIES: dict[str, Callable[[Field, str], str]] = {
    "topic": lambda field, record: f"{field.topic}-{field.part}",
    "record": lambda field, record: record,
    "topic-record": lambda field, record: f"{field.topic}-{record}",
}


def wire_header(number: int) -> bytes:
    """What a value with the schema of this id begins with.

    >>> wire_header(258)
    b'\\x00\\x00\\x00\\x01\\x02'
    """
    return _MAGIC + number.to_bytes(4, "big")


class Avro(Serde[T]):
    """Avro records as dicts, or as classes that `headrace schema classes` wrote.

    >>> serde = Avro({"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]})
    >>> serde.encode({"x": 1}, Field("points"))
    b'\\x02'
    >>> serde.decode(b"\\x02", Field("points"))
    {'x': 1}

    `schema` is a file's path, JSON text, a dict, or a class with `__avro_schema__`. With a
    `registry` records carry the id of their schema, so old and new readers and writers mix;
    `auto_register=False` only uses schemas that are registered already. `subject` says under
    which name: by topic (`clicks-value`), record, both, or your own function.
    """

    @overload
    def __init__(
        self: "Avro[Any]",
        schema: SchemaSource,
        registry: Registry | None = None,
        *,
        subject: SubjectStrategy = "topic",
        auto_register: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self,
        schema: type[T],
        registry: Registry | None = None,
        *,
        subject: SubjectStrategy = "topic",
        auto_register: bool = True,
    ) -> None: ...
    def __init__(
        self,
        schema: Any,
        registry: Registry | None = None,
        *,
        subject: SubjectStrategy = "topic",
        auto_register: bool = True,
    ) -> None:
        self.schema = load_schema(schema)
        self.registry = registry
        self._class = schema if isinstance(schema, type) else None
        self._subject = subject
        self._auto_register = auto_register
        self._subject_of = _strategy(subject)
        self._prepare()

    def subject(self, field: Field) -> str:
        """The name under which the registry keeps the schema of this field."""
        return self._subject_of(field, self.schema.name)

    def dump(self, value: T, field: Field) -> bytes:
        try:
            ready = self._fit(value)
        except Misfit as misfit:
            raise ValueError(str(misfit)) from misfit.__cause__
        body = io.BytesIO()
        if self.registry is not None:
            body.write(self._header(field, self.registry))
        self._write(body, self.schema.parsed, ready)
        return body.getvalue()

    def load(self, data: bytes, field: Field) -> T:
        if self.registry is None:
            return self._read(data, 0, self.schema)
        if len(data) < _HEADER:
            raise ValueError(
                f"too short for the wire format: a zero byte and a schema id are {_HEADER}"
            )
        if data[:1] != _MAGIC:
            raise ValueError(f"the first byte is 0x{data[0]:02x}, the wire format begins with 0x00")
        number = int.from_bytes(data[1:_HEADER], "big", signed=True)
        return self._read(data, _HEADER, self._writer(number, self.registry))

    # --- writing ---

    def _header(self, field: Field, registry: Registry) -> bytes:
        subject = self._subject_of(field, self.schema.name)
        header = self._headers.get(subject)
        if header is None:
            find = registry.register if self._auto_register else registry.lookup
            number = find(subject, self.schema).id
            header = self._headers[subject] = wire_header(number)
        return header

    # --- reading ---

    def _writer(self, number: int, registry: Registry) -> AvroSchema:
        """The schema that a record was written with. A failure is never kept."""
        writer = self._writers.get(number)
        if writer is None:
            try:
                writer = registry.avro_schema(number)
            except SchemaNotFound as error:
                raise ValueError(f"the registry knows no schema with the id {number}") from error
            except BadInput as error:
                raise ValueError(f"schema {number} cannot be used: {error.message}") from error
            if writer.source == self.schema.source:
                writer = self.schema
            self._writers[number] = writer
        return writer

    def _read(self, data: bytes, start: int, writer: AvroSchema) -> T:
        body = io.BytesIO(data)
        body.seek(start)
        reader = None if writer is self.schema else self._reader_schema
        # The fast reader recurses in C without a limit: a hundred kilobytes that nest a schema in
        # itself would end the process. The one in Python raises RecursionError.
        read = self._read_slowly if writer.recursive else self._read_fast
        try:
            value = read(body, writer.parsed, reader, return_named_type=self._restore is not None)
        except EOFError as error:
            raise ValueError("the body ends too early") from error
        except IndexError as error:
            raise ValueError("the body ends too early, or is damaged") from error
        except self._no_resolution as error:
            raise ValueError(
                f"its writer's schema does not resolve to this one: {error}"
            ) from error
        if left := len(data) - body.tell():
            raise ValueError(f"{left:,} bytes are left after the value")
        result: T = value if self._restore is None else self._restore(value)
        return result

    # --- inside ---

    def _prepare(self) -> None:
        library = fastavro()
        from fastavro import _read_py

        self._write: Callable[..., None] = library.schemaless_writer
        self._read_fast: Callable[..., Any] = library.schemaless_reader
        self._read_slowly: Callable[..., Any] = _read_py.schemaless_reader
        self._no_resolution = library.read.SchemaResolutionError
        self._headers: dict[str, bytes] = {}
        self._writers: dict[int, AvroSchema] = {}
        check_defaults(self.schema)
        self._fit = fitting(self.schema)
        self._reader_schema, has_marks = marked(self.schema)
        self._restore = None
        if self._class is not None or has_marks:
            classes = classes_of(self._class) if self._class is not None else {}
            self._restore = restoring(self.schema, classes)

    def __reduce__(self) -> tuple[Any, ...]:
        schema = self._class or self.schema.source
        return (_rebuild, (schema, self.registry, self._subject, self._auto_register))

    def __repr__(self) -> str:
        registry = f", {self.registry!r}" if self.registry else ""
        return f"Avro({self.schema.name}{registry})"


def _rebuild(schema: Any, registry: Any, subject: Any, auto_register: bool) -> Any:
    return Avro(schema, registry, subject=subject, auto_register=auto_register)


def _strategy(subject: SubjectStrategy) -> Callable[[Field, str], str]:
    if callable(subject):
        return subject
    if subject not in _STRATEGIES:
        raise ConfigError(
            f"subject={subject!r} is no way to name subjects",
            hint=f"use {', '.join(_STRATEGIES)}, or a function of field and record name",
            subject=subject,
        )
    return _STRATEGIES[subject]
