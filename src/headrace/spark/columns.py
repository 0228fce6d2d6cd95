"""Which columns a table for Kafka may have, and where its pieces begin and end."""

from typing import TYPE_CHECKING

from headrace.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructField, StructType

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp", "piece")
HEADER = "header:"  # and a name: a column for one header, null where a row has none
ROW_HEADER = "headrace-row"  # a row's id, by which a repeated one is known


def check_columns(schema: "StructType", topic: str | None) -> None:
    """Refuse a table that cannot be records, naming the column."""
    for field in schema.fields:
        _check_column(field)
    names = set(schema.fieldNames())
    if "value" not in names:
        raise BadInput("there is no column 'value'", hint="to_json(struct(...)).alias('value')")
    if "topic" not in names and topic is None:
        raise BadInput(
            "no topic is given", hint=".option('topic', NAME), or a column 'topic' with a name"
        )


def _check_column(field: "StructField") -> None:
    from pyspark.sql import types as t

    texts = (t.BinaryType, t.StringType)
    allowed: dict[str, tuple[type[DataType], ...]] = {
        "key": texts,
        "value": texts,
        "headers": (t.ArrayType,),
        "topic": (t.StringType,),
        "partition": (t.IntegerType, t.LongType),
        "timestamp": (t.TimestampType, t.LongType),
        "piece": (t.StringType,),
    }
    types = texts if field.name.startswith(HEADER) else allowed.get(field.name)
    if types is None or field.name == HEADER:
        raise BadInput(
            f"column {field.name!r} means nothing to Kafka",
            hint=f"the columns are {', '.join(COLUMNS)} and {HEADER}NAME: select and rename",
        )
    if not isinstance(field.dataType, types):
        kinds = " or ".join(kind.typeName() for kind in types)
        raise BadInput(
            f"column {field.name!r} is {field.dataType.simpleString()}, not {kinds}",
            hint=f"cast it: .withColumn({field.name!r}, ...)",
        )
    if isinstance(field.dataType, t.ArrayType) and not _is_header(field.dataType.elementType):
        raise BadInput(
            f"column 'headers' is {field.dataType.simpleString()}, not an array of headers",
            hint="array(struct(lit(NAME).alias('key'), VALUE.cast('binary').alias('value')))",
        )


def _is_header(kind: "DataType") -> bool:
    from pyspark.sql import types as t

    if not isinstance(kind, t.StructType) or sorted(kind.fieldNames()) != ["key", "value"]:
        return False
    texts = (t.BinaryType, t.StringType)
    return isinstance(kind["key"].dataType, t.StringType) and isinstance(
        kind["value"].dataType, texts
    )


def pieces_of(batch: "pa.RecordBatch") -> list[tuple[str, "pa.RecordBatch"]]:
    """A batch cut where column `piece` changes."""
    values = batch.column(batch.schema.names.index("piece"))
    if not batch.num_rows:
        return []
    import pyarrow.compute as pc

    runs = pc.run_end_encode(values)
    cut, start = [], 0
    for end, name in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        if name is None:
            raise BadInput("column 'piece' is null in a row", hint="give every row a piece")
        cut.append((name, batch.slice(start, end - start)))
        start = end
    return cut
