"""What the columns of a file mean: names, types, and what becomes of them in the event."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from headrace.errors import BadInput, ConfigError

ColumnType = Literal["string", "long", "double", "time", "enum"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Column:
    """One column of the file and its field in the event."""

    name: str
    field: str
    type: ColumnType = "string"
    required: bool = False
    format: str = "yyyy-MM-dd HH:mm:ss 'UTC'"  # of a time, as Spark writes patterns
    values: tuple[str, ...] = ()  # of an enum


@dataclass(frozen=True)
class RowSchema:
    """All columns, in the file's order; `time` is the column that can be the record's timestamp."""

    name: str
    columns: tuple[Column, ...]
    key: str | None = None
    time: str | None = None

    def column(self, name: str) -> Column:
        for column in self.columns:
            if name in (column.name, column.field):
                return column
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
    """A built-in schema by name, or one from a TOML file."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    path = Path(name)
    if not path.is_file():
        raise BadInput(
            f"there is no schema {name!r}",
            hint=f"built in: {', '.join(BUILT_IN)}; else give a TOML file with [[columns]]",
        )
    return schema_from_toml(path)


def schema_from_toml(path: Path) -> RowSchema:
    """A schema file: `key`, `time`, and [[columns]] with name, type, field, required, ..."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="it must be TOML") from error
    columns = document.get("columns")
    if not isinstance(columns, list) or not columns:
        raise ConfigError(f"{path} has no [[columns]]", hint="give each a name and a type")
    schema = RowSchema(
        path.stem,
        tuple(_column(path, number, table) for number, table in enumerate(columns, 1)),
        document.get("key"),
        document.get("time"),
    )
    for name in (schema.key, schema.time):
        if name is not None:
            schema.column(name)
    return schema


def _column(path: Path, number: int, table: Any) -> Column:
    where = f"{path}, column {number}"
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ConfigError(f"{where} has no name", hint='[[columns]] name = "price"')
    unknown = set(table) - {"name", "field", "type", "required", "format", "values"}
    if unknown:
        raise ConfigError(
            f"{where} has unknown settings: {', '.join(sorted(unknown))}",
            hint="there are name, field, type, required, format, values",
        )
    kind = table.get("type", "string")
    if kind not in get_args(ColumnType):
        raise ConfigError(
            f"{where} has type {kind!r}", hint=f"types are {', '.join(get_args(ColumnType))}"
        )
    name = str(table["name"])
    column = Column(
        name,
        str(table.get("field", name)),
        kind,
        required=bool(table.get("required", False)),
        format=str(table.get("format", Column.format)),
        values=tuple(map(str, table.get("values", ()))),
    )
    if not (_NAME.fullmatch(column.name) and _NAME.fullmatch(column.field)):
        raise ConfigError(f"{where} is named {name!r}", hint="letters, digits and _ only")
    if kind == "enum" and not column.values:
        raise ConfigError(f"{where} is an enum without values", hint='values = ["a", "b"]')
    return column
