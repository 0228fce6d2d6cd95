"""Avro values, as Spark expressions: one `from_avro` for each schema that is known.

The wire format is a zero byte, the schema's id in four bytes, and the body.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DataType, StructType

from headrace.errors import BadInput, ConfigError, RegistryError, SchemaNotFound
from headrace.serde import Registry
from headrace.serde.avro import wire_header
from headrace.serde.schemas import RECORDS, AvroSchema, kind
from headrace.spark.pipelines.avro_schemas import END, END_MARK, Layout, defaults_of, layout_of
from headrace.spark.pipelines.converting import as_text, converted
from headrace.spark.pipelines.fields import Avro, Field
from headrace.spark.pipelines.lake import fingerprint
from headrace.spark.pipelines.values import NO_VALUE, Read, missing, nothing, wrong

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SCHEMA = "headrace:schema"
_MAGIC = b"\x00"
_HEADER_BYTES = 5
_LARGEST_ID = 2**31 - 1
_SCHEMAS_AHEAD = 3


class AvroReader:
    """Reads the Avro values of topics with the schemas that it has learned. What the registry says
    of one is kept for good; for one that it does not know, it is asked with every batch."""

    def __init__(self, value: Avro, topics: Sequence[str], registry: Registry) -> None:
        self._value, self._topics, self._registry = value, topics, registry
        self._known: dict[int, _Branch | str] = {}
        self._newest: AvroSchema | None = None
        self._has_looked = False
        self._made: _Expressions | None = None

    def __call__(self, records: "DataFrame") -> Read:
        if not self._has_looked:
            self._look_ahead(records.sparkSession)
        if self._made is None:
            self._made = _expressions(self._value, self._known)
        return self._made.on(records)

    def learn(self, schemas: Collection[int], spark: "SparkSession") -> bool:
        """Ask the registry; if it does not answer, nothing of the batch is read."""
        before = len(self._known)
        self._learn([number for number in schemas if number <= _LARGEST_ID], spark)
        return len(self._known) > before

    @property
    def context(self) -> str:
        """The schema that defaults come from."""
        return "" if self._newest is None else fingerprint(self._newest.parsed)

    def _look_ahead(self, spark: "SparkSession") -> None:
        """The newest schemas of the topics are most likely those of their records. If there are
        none, or nobody answers, the first records tell what is needed."""
        self._has_looked = True
        try:
            self._learn([each for topic in self._topics for each in self._newest_of(topic)], spark)
        except RegistryError:
            return
        finally:
            self._registry.close()

    def _newest_of(self, topic: str) -> list[int]:
        subject = f"{topic}-value"
        try:
            versions = self._registry.versions(subject)[-_SCHEMAS_AHEAD:]
        except SchemaNotFound:
            return []
        return [self._registry.get(subject, each).id for each in versions]

    def _learn(self, ids: Iterable[int], spark: "SparkSession") -> None:
        try:
            schemas = {number: self._fetch(number) for number in ids if number not in self._known}
            if any(isinstance(schema, AvroSchema) for schema in schemas.values()):
                self._follow_newest(spark)
        finally:
            self._registry.close()
        for number, schema in schemas.items():
            if schema is not None:
                self._known[number] = self._branch(number, schema, spark)
                self._made = None

    def _fetch(self, number: int) -> AvroSchema | str | None:
        """A schema, why it is of no use, or None if there is none."""
        try:
            return self._registry.avro_schema(number)
        except SchemaNotFound:
            return None
        except ConfigError:
            raise  # of this machine, not of the schema
        except BadInput as error:
            return error.message

    def _follow_newest(self, spark: "SparkSession") -> None:
        """Defaults are those of the topic's newest schema, which is another one now and then."""
        newest = self._fetch_newest()
        if newest != self._newest:
            self._newest = newest
            for number, one in self._known.items():
                if isinstance(one, _Branch):
                    self._known[number] = self._branch(number, one.schema, spark)

    def _fetch_newest(self) -> AvroSchema | None:
        for topic in self._topics:
            try:
                schema = self._fetch(self._registry.get(f"{topic}-value").id)
            except SchemaNotFound:
                continue
            if isinstance(schema, AvroSchema) and kind(schema.parsed) in RECORDS:
                return schema
        return None

    def _branch(
        self, number: int, schema: AvroSchema | str, spark: "SparkSession"
    ) -> "_Branch | str":
        if isinstance(schema, str):
            return schema
        layout = layout_of(schema, self._value)
        if isinstance(layout, str):
            return f"schema {number} {layout}"
        gone = [each.field for each in self._value.fields if each.field not in layout.found]
        defaults = None if self._newest is None else defaults_of(self._newest, gone)
        try:
            branch = _Branch(number, schema, layout, defaults, *_types(spark, layout, defaults))
        except (PySparkException, Py4JJavaError) as error:
            return f"schema {number} cannot be read by Spark: {_first_line(error)}"
        return branch.refusal(self._value.fields) or branch


def _types(spark: "SparkSession", layout: Layout, defaults: Layout | None) -> list[StructType]:
    """What Spark makes of these schemas."""
    rows = [_parsed(each, F.lit(b"")) for each in (layout, defaults) if each is not None]
    found = spark.range(0).select(*rows).schema
    return [each.dataType for each in found if isinstance(each.dataType, StructType)]


def _first_line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.getMessage())
    return next((line.strip() for line in text.splitlines() if line.strip()), "?")


def _parsed(layout: Layout, body: "Column") -> "Column":
    return from_avro(body, layout.writer, {"avroSchema": layout.reader, "mode": "PERMISSIVE"})


@dataclass(frozen=True)
class _Branch:
    """How records of one schema are read, and where their fields are then."""

    number: int
    schema: AvroSchema
    layout: Layout
    defaults: Layout | None
    row: StructType
    default_row: StructType | None = None

    @property
    def column(self) -> str:
        """Null for records of other schemas."""
        return f"headrace:avro{self.number}"

    @property
    def parsed(self) -> "Column":
        body = F.concat(F.expr(f"substring(value, {_HEADER_BYTES + 1})"), F.lit(END_MARK))
        return F.when(_is_of(self.number), _parsed(self.layout, body))

    def raw(self, field: Field) -> "tuple[Column, DataType] | None":
        """A field as it was written, or the default; None if there is neither."""
        if name := self.layout.found.get(field.field):
            return F.col(self.column)[name], self.row[name].dataType
        if self.defaults is None or self.default_row is None:
            return None
        name = self.defaults.found.get(field.field)
        if name is None:
            return None
        given = _parsed(self.defaults, F.lit(b""))[name]
        return F.when(F.col(self.column).isNotNull(), given), self.default_row[name].dataType

    def refusal(self, fields: Iterable[Field]) -> str | None:
        """Why no record of this schema can be read: a field is what its type cannot be."""
        for field in fields:
            found = self.raw(field)
            if found is not None and converted(field.type, *found) is None:
                is_now = found[1].simpleString()
                return f"{field.field} is {is_now} in schema {self.number}, not {field.type}"
        return None

    def typed(self, field: Field) -> "Column":
        found = self.raw(field)
        made = None if found is None else converted(field.type, *found)
        return nothing(field.type) if made is None else made

    def misfit(self, field: Field) -> "Column":
        """The reason, if a field is there and did not become what it should be."""
        found = self.raw(field)
        return nothing() if found is None else F.when(found[0].isNotNull(), wrong(field, found[0]))

    @property
    def end(self) -> "Column":
        return F.col(self.column)[END]

    @property
    def rescued(self) -> "Column":
        """Fields that nobody declared, as a JSON object of texts; nulls are left out."""
        pairs = []
        for name, ours in self.layout.unknown.items():
            text = as_text(F.col(self.column)[ours], self.row[ours].dataType)
            pairs += [F.lit(name), text.cast("string")]
        if not pairs:
            return nothing()
        given = F.map_filter(F.create_map(*pairs), lambda _, text: text.isNotNull())
        return F.when(F.size(given) > 0, F.to_json(given))


def _schema_id() -> "Column":
    whole = F.octet_length("value") >= _HEADER_BYTES
    begins = F.substring("value", 1, 1) == F.lit(_MAGIC)
    return F.when(whole & begins, F.substring("value", 2, 4))


@dataclass(frozen=True)
class _Expressions:
    """How records of all schemas that are known are read. They serve all batches until another one
    is: each of their parts is a call to Spark."""

    parsed: "dict[str, Column]"
    typed: "dict[str, Column]"
    columns: "list[Column]"
    rescued: "Column"
    problem: "Column"
    strange: "Column"

    def on(self, records: "DataFrame") -> Read:
        rows = records.withColumn(_SCHEMA, _schema_id()).withColumns(self.parsed)
        rows = rows.withColumns(self.typed)
        return Read(rows, self.columns, self.rescued, self.problem, self.strange)


def _expressions(value: Avro, known: "Mapping[int, _Branch | str]") -> _Expressions:
    unusable = {number: why for number, why in sorted(known.items()) if isinstance(why, str)}
    branches = [one for _, one in sorted(known.items()) if isinstance(one, _Branch)]
    typed = {
        _typed(n): F.coalesce(nothing(field.type), *(branch.typed(field) for branch in branches))
        for n, field in enumerate(value.fields)
    }
    strange = _strange(known)
    return _Expressions(
        {branch.column: branch.parsed for branch in branches},
        typed,
        [F.col(_typed(n)).alias(field.column) for n, field in enumerate(value.fields)],
        F.coalesce(nothing(), *(branch.rescued for branch in branches)),
        _problem(value, branches, unusable, strange),
        strange,
    )


def _strange(known: Iterable[int]) -> "Column":
    """The number of a schema that is not known; else null."""
    headers = [F.lit(wire_header(number)[1:]) for number in known]
    number = F.conv(F.hex(_SCHEMA), 16, 10).cast("long")
    return F.when(~F.col(_SCHEMA).isin(headers), number) if headers else number


def _typed(number: int) -> str:
    return f"headrace:field{number}"


def _problem(
    value: Avro, branches: "list[_Branch]", unusable: dict[int, str], strange: "Column"
) -> "Column":
    """Why a record is bad, the first cause; null if it is good."""
    short = F.concat(F.lit("too short for Avro: bytes "), F.octet_length("value").cast("string"))
    first = F.lower(F.hex(F.substring("value", 1, 1)))
    begin = F.concat(F.lit("the first byte is 0x"), first, F.lit(", Avro values begin with 0x00"))
    no_schema = F.concat(F.lit("the registry knows no schema with the id "), strange)
    end = F.coalesce(nothing("binary"), *(branch.end for branch in branches))
    causes = [
        F.when(F.col("value").isNull(), F.lit(NO_VALUE)),
        F.when(F.octet_length("value") < _HEADER_BYTES, short),
        F.when(F.col(_SCHEMA).isNull(), begin),
        *(F.when(_is_of(number), F.lit(why)) for number, why in unusable.items()),
        no_schema,  # null for records that are not strange
        F.when(end.isNull(), F.lit("the body ends too early, or is damaged")),
        F.when(end != F.lit(END_MARK), F.lit("something follows the record, or it is damaged")),
        *(cause for n, field in enumerate(value.fields) for cause in _causes(n, field, branches)),
    ]
    return F.coalesce(*causes)


def _is_of(number: int) -> "Column":
    return F.col(_SCHEMA) == F.lit(wire_header(number)[1:])


def _causes(number: int, field: Field, branches: "list[_Branch]") -> "list[Column]":
    unread = F.col(_typed(number)).isNull()
    misfit = F.coalesce(nothing(), *(branch.misfit(field) for branch in branches))
    absent = missing(field) if field.required else nothing()
    return [F.when(unread, F.coalesce(misfit, absent))]
