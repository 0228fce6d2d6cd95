"""What the columns of a file mean: names, types, and what becomes of them in the event."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from headrace.errors import BadInput, ConfigError

ColumnType = Literal["string", "long", "int", "double", "float", "boolean", "time", "date", "enum"]
Unit = Literal["millis", "micros"]
DATE_FORMAT = "yyyy-MM-dd"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What a column's table in a schema file may hold, and an example of each.
_SETTINGS: dict[str, tuple[type, str]] = {
    "name": (str, '"price"'),
    "field": (str, '"unitPrice"'),
    "type": (str, '"double"'),
    "required": (bool, "true"),
    "format": (str, '"yyyy-MM-dd"'),
    "values": (list, '["a", "b"]'),
}


@dataclass(frozen=True)
class Column:
    """One column of the file and its field in the event."""

    name: str
    field: str
    type: ColumnType = "string"
    required: bool = False
    # Of a time or a date: a pattern as Spark writes them; or the time's unit, for whole numbers.
    format: str = "yyyy-MM-dd HH:mm:ss 'UTC'"
    values: tuple[str, ...] = ()  # of an enum
    unit: Unit = "millis"  # of a time in the event, since 1970

    @property
    def is_counted_time(self) -> bool:
        """Whether it is a time that the file has as a number, not as text."""
        return self.type == "time" and self.format == self.unit


@dataclass(frozen=True)
class RowSchema:
    """All columns, in the file's order; `time` is the column that can be the record's timestamp."""

    name: str
    columns: tuple[Column, ...]
    key: str | None = None
    time: str | None = None
    avro: str | None = None  # the Avro schema that it was made from

    def column(self, name: str) -> Column:
        # Names first: a column's field may be called like another column.
        found = [column for column in self.columns if column.name == name]
        found += [column for column in self.columns if column.field == name]
        if found:
            return found[0]
        raise BadInput(
            f"schema {self.name!r} has no column {name!r}",
            hint=f"its columns are {', '.join(self.names)}",
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


CLICKSTREAM = RowSchema(
    "clickstream",
    (
        Column("event_time", "eventTime", "time", required=True),
        Column(
            *("event_type", "eventType", "enum"),
            required=True,
            values=("view", "cart", "remove_from_cart", "purchase"),
        ),
        Column("product_id", "productId", "long", required=True),
        Column("category_id", "categoryId", "long", required=True),
        Column("category_code", "categoryCode"),
        Column("brand", "brand"),
        Column("price", "price", "double", required=True),
        Column("user_id", "userid", "long", required=True),
        Column("user_session", "userSession"),
    ),
    key="user_id",
    time="event_time",
)
BUILT_IN = {CLICKSTREAM.name: CLICKSTREAM}


def find_schema(name: str) -> RowSchema:
    """A built-in schema by name, or one from a TOML file or an Avro schema."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    path = Path(name)
    if not path.is_file():
        raise BadInput(
            f"there is no schema {name!r}",
            hint=f"built in: {', '.join(BUILT_IN)}; else give a TOML file with [[columns]], "
            "or an Avro schema (.avsc)",
        )
    if path.suffix == ".avsc":
        from headrace.spark.ingest.avro_schema import schema_from_avro  # which imports this

        return schema_from_avro(path)
    return schema_from_toml(path)


def schema_from_toml(path: Path) -> RowSchema:
    """A schema file: `key`, `time`, and [[columns]] with name, type, field, required, ..."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="it must be TOML") from error
    _refuse_unknown(str(path), document, ("key", "time", "columns"))
    tables = document.get("columns")
    if not isinstance(tables, list) or not tables:
        raise ConfigError(f"{path} has no [[columns]]", hint="give each a name and a type")
    columns = tuple(_column(path, number, table) for number, table in enumerate(tables, 1))
    for names in ([column.name for column in columns], [column.field for column in columns]):
        _refuse_twins(path, names)
    schema = RowSchema(path.stem, columns, document.get("key"), document.get("time"))
    _check_named(path, schema)
    return schema


def _refuse_unknown(where: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    if unknown := set(table) - set(known):
        raise ConfigError(
            f"{where} has unknown settings: {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(known)}",
        )


def _refuse_twins(path: Path, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path} has {name!r} twice", hint="give each column its own name")


def _check_named(path: Path, schema: RowSchema) -> None:
    """`key` and `time` name columns of the schema."""
    for setting, name in (("key", schema.key), ("time", schema.time)):
        if name is None:
            continue
        try:
            column = schema.column(name)
        except BadInput as error:
            problem = f"{path} has {setting} = {name!r}, which is no column"
            raise ConfigError(problem, hint=error.hint) from error
        if setting == "time" and column.type != "time":
            raise ConfigError(
                f"{path} has time = {name!r}, a column of type {column.type}",
                hint='name one with type = "time"',
            )


def _column(path: Path, number: int, table: Any) -> Column:
    where = f"{path}, column {number}"
    if not isinstance(table, dict) or "name" not in table:
        raise ConfigError(f"{where} has no name", hint='[[columns]] name = "price"')
    where += f" ({table['name']})"
    _refuse_unknown(where, table, tuple(_SETTINGS))
    for setting, value in table.items():
        kind, example = _SETTINGS[setting]
        if not isinstance(value, kind):
            raise ConfigError(f"{where} has {setting} = {value!r}", hint=f"{setting} = {example}")
    name: str = table["name"]
    column_type: ColumnType = table.get("type", "string")
    pattern = table.get("format", DATE_FORMAT if column_type == "date" else Column.format)
    column = Column(
        name,
        table.get("field", name),
        column_type,
        required=table.get("required", False),
        format=pattern,
        values=tuple(table.get("values", ())),
        unit="micros" if pattern == "micros" else "millis",
    )
    _check_column(where, column, table)
    return column


def _check_column(where: str, column: Column, table: dict[str, Any]) -> None:
    for name in (column.name, column.field):
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{where} is named {name!r}", hint="letters, digits and _ only")
    if column.type not in get_args(ColumnType):
        types = ", ".join(get_args(ColumnType))
        raise ConfigError(f"{where} has type {column.type!r}", hint=f"types are {types}")
    for setting, kinds in (("values", ("enum",)), ("format", ("time", "date"))):
        if setting in table and column.type not in kinds:
            hint = f'type = "{kinds[0]}"'
            raise ConfigError(f"{where} has {setting}, but is of type {column.type}", hint=hint)
    if column.type == "date" and column.format in get_args(Unit):
        hint = f'format = "{DATE_FORMAT}", or type = "time"'
        raise ConfigError(f"{where} has format {column.format!r}, but is a date", hint=hint)
    if column.type == "enum" and not column.values:
        raise ConfigError(f"{where} is an enum without values", hint='values = ["a", "b"]')
    if not all(isinstance(value, str) and value for value in column.values):
        raise ConfigError(
            f"{where} has values that are no text: {list(column.values)}",
            hint='values = ["a", "b"]; an empty column is null',
        )
