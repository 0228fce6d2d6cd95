"""New fields get columns: schema drift that is welcome."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.fields import RESCUED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def new_columns(fields: Iterable[str], taken: Iterable[str], known: Iterable[str]) -> list[str]:
    """Fields that can be columns; Spark does not tell upper from lower case in their names.

    `known` are columns that fields of earlier batches got: the same names get the same ones.

    >>> new_columns(["COLOUR", "colour", "Price", "a b", "Size"], ["price"], ["colour"])
    ['colour', 'Size']
    """
    before = set(known)
    used = {name.lower() for name in (*taken, *before)}
    names = sorted(fields)
    found = [name for name in names if name in before]
    for name in names:
        if _NAME.fullmatch(name) and name.lower() not in used:
            used.add(name.lower())
            found.append(name)
    return found


def with_new_columns(
    rows: "DataFrame", taken: Iterable[str], known: Iterable[str]
) -> "tuple[DataFrame, list[str]]":
    """Each rescued field in a column of its own, as text; what cannot be one stays rescued."""
    fields = rows.where(F.col(RESCUED).isNotNull()).select(F.explode(F.json_object_keys(RESCUED)))
    names = new_columns((row[0] for row in fields.distinct().collect()), taken, known)
    everything = F.from_json(RESCUED, "map<string,string>")
    rest = F.map_filter(everything, lambda name, _: ~name.isin(names) if names else F.lit(True))
    evolved = rows.select(
        *(column for column in rows.columns if column != RESCUED),
        *(everything[name].alias(name) for name in names),
        F.when(F.size(rest) > 0, F.to_json(rest)).alias(RESCUED),
    )
    return evolved, names
