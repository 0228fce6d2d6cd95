"""What a file is: CSV or JSON lines, as told or by its name."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Literal

from headrace.errors import BadInput
from headrace.spark.ingest.json_lines import JsonField, Kind
from headrace.spark.ingest.schema import Column, ColumnType, RowSchema

Format = Literal["csv", "jsonl"]
ValueFormat = Literal["json", "csv", "avro"]
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_KINDS: dict[ColumnType, Kind] = {
    "long": "whole",
    "int": "whole",
    "double": "number",
    "float": "number",
    "boolean": "truth",
}


def format_of(path: str, told: Format | None = None) -> Format:
    """What a file is: what was told, else by its suffix before `.gz`.

    >>> format_of("events.ndjson.gz"), format_of("events.csv"), format_of("events")
    ('jsonl', 'csv', 'csv')
    """
    if told is not None:
        return told
    name = PurePath(path.lower().removesuffix(".gz"))
    return "jsonl" if name.suffix in JSON_SUFFIXES else "csv"


def check_value(value: ValueFormat, paths: Sequence[str], told: Format | None) -> None:
    """A row of JSON lines has no CSV that could be sent as it stands."""
    if value != "csv":
        return
    for path in paths:
        if format_of(path, told) == "jsonl":
            why = "--format" if told else "its suffix"
            raise BadInput(
                f"--value csv sends lines as they stand, but {path} is jsonl (by {why})",
                hint="use --value json or avro; if the file is CSV, say --format csv",
                path=path,
            )


def json_fields(schema: RowSchema) -> list[JsonField]:
    """What the columns are in JSON lines. Times are text, unless they are counted."""
    return [JsonField(column.name, _kind(column)) for column in schema.columns]


def _kind(column: Column) -> Kind:
    return "whole" if column.is_counted_time else _KINDS.get(column.type, "text")
