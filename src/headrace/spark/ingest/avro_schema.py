"""Row schemas from Avro schemas, and the other way round."""

import re
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError
from headrace.serde.schemas import AvroSchema, kind, load_schema, logical
from headrace.spark.ingest.schema import DATE_FORMAT, Column, ColumnType, RowSchema, Unit

_PRIMITIVES: dict[str, ColumnType] = {
    "string": "string",
    "long": "long",
    "int": "int",
    "double": "double",
    "float": "float",
    "boolean": "boolean",
}
_TIMES: dict[str, Unit] = {"long-timestamp-millis": "millis", "long-timestamp-micros": "micros"}
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = (
    "string, long, int, double, float, boolean, an enum, timestamp-millis, timestamp-micros, date, "
    "each alone or in a union with null"
)


def schema_from_avro(path: Path) -> RowSchema:
    """The columns of a record's fields. A field that cannot be null is required.

    The only time among them is the record's. `"format"` in a field says how a time or a date is
    written in the file; Avro lets fields have more settings than it knows.
    """
    schema = load_schema(path)
    if kind(schema.parsed) != "record":
        raise ConfigError(
            f"{path} is {_shown(schema.parsed)}, not a record",
            hint='rows need {"type": "record", ...} with a field for each column',
        )
    if not schema.parsed["fields"]:
        raise ConfigError(f"{path} has no fields", hint="give it a field for each column")
    columns = tuple(_column(path, schema, field) for field in schema.parsed["fields"])
    times = [column.name for column in columns if column.type == "time"]
    time = times[0] if len(times) == 1 else None
    return RowSchema(path.stem, columns, time=time, avro=schema.text)


def avro_of(schema: RowSchema) -> AvroSchema:
    """The Avro schema of events: the one it was made from, or one with the same fields."""
    return load_schema(schema.avro if schema.avro is not None else _record(schema))


def check_names(schema: AvroSchema) -> None:
    """Spark finds fields without regard to upper and lower case."""
    seen: dict[str, str] = {}
    for field in schema.parsed["fields"]:
        name = field["name"]
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise ConfigError(
                f"the fields {other} and {name} differ only in upper and lower case",
                hint="rename one of them, or use --value json",
            )


# --- from Avro ---


def _column(path: Path, schema: AvroSchema, field: dict[str, Any]) -> Column:
    name = field["name"]
    where = f"{path}, field {name}"
    inner, nullable = _without_null(schema.definition(field["type"]))
    inner = schema.definition(inner)
    found = _type(inner)
    if found is None:
        raise ConfigError(
            f"{where} is {_shown(inner)}, which a column cannot be",
            hint=f"a column is {_TAKEN}; change {name}, or describe the rows in a TOML file",
        )
    values = tuple(inner["symbols"]) if found == "enum" else ()
    unit = _TIMES.get(logical(inner) or "", "millis")
    pattern = _pattern(where, field, found, unit)
    return Column(
        name, name, found, required=not nullable, format=pattern, values=values, unit=unit
    )


def _without_null(schema: Any) -> tuple[Any, bool]:
    """The one type beside null, and whether null is allowed; other unions stay as they are."""
    if isinstance(schema, list) and len(schema) == 2 and "null" in map(kind, schema):
        return next(branch for branch in schema if kind(branch) != "null"), True
    return schema, False


def _type(schema: Any) -> ColumnType | None:
    meaning = logical(schema)
    if meaning is not None:
        return "time" if meaning in _TIMES else "date" if meaning == "int-date" else None
    return "enum" if kind(schema) == "enum" else _PRIMITIVES.get(kind(schema))


def _pattern(where: str, field: dict[str, Any], found: ColumnType, unit: Unit) -> str:
    pattern = field.get("format")
    if pattern is None:
        # A time is a number as in Avro's own JSON; a date is written as people do.
        return {"time": unit, "date": DATE_FORMAT}.get(found, Column.format)
    if not isinstance(pattern, str) or found not in ("time", "date"):
        raise ConfigError(
            f"{where} has format {pattern!r}, but is {found}",
            hint='only times and dates have one, such as "yyyy-MM-dd"',
        )
    if found == "date" and pattern in _TIMES.values():
        hint = f'"format": "{DATE_FORMAT}"'
        raise ConfigError(f"{where} has format {pattern!r}, but is a date", hint=hint)
    if pattern in _TIMES.values() and pattern != unit:
        raise ConfigError(
            f"{where} has format {pattern!r}, but counts {unit}", hint=f'"format": "{unit}"'
        )
    return pattern


def _shown(schema: Any) -> str:
    if (meaning := logical(schema)) is not None:
        return meaning.partition("-")[2]
    found = kind(schema)
    if found == "union":
        return f"a union of {', '.join(map(kind, schema))}"
    return found if found in ("bytes", "null", *_PRIMITIVES) else f"of type {found}"


# --- to Avro ---


def _record(schema: RowSchema) -> dict[str, Any]:
    name = _name(schema.name)
    fields = [_field(name, column) for column in schema.columns]
    return {"type": "record", "name": name, "fields": fields}


def _name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return name if _SYMBOL.fullmatch(name) else f"_{name}"


def _field(record: str, column: Column) -> dict[str, Any]:
    inner = _avro_type(record, column)
    if column.required:
        return {"name": column.field, "type": inner}
    return {"name": column.field, "type": ["null", inner], "default": None}


def _avro_type(record: str, column: Column) -> Any:
    if column.type == "time":
        return {"type": "long", "logicalType": f"timestamp-{column.unit}"}
    if column.type == "date":
        return {"type": "int", "logicalType": "date"}
    if column.type == "enum":
        if not all(_SYMBOL.fullmatch(value) for value in column.values):
            return "string"  # Avro's symbols are names
        return {"type": "enum", "name": f"{record}_{column.field}", "symbols": list(column.values)}
    return column.type
