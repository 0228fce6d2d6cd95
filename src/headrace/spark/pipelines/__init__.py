"""Pipelines from Kafka to tables: declared as data, run exactly once by Spark.

>>> from headrace.spark.pipelines import CLICKSTREAM
>>> [table.name for table in CLICKSTREAM.tables]
['events', 'sessions', 'funnel', 'revenue']
"""

from headrace.spark.pipelines.clickstream import CLICKSTREAM
from headrace.spark.pipelines.definition import (
    Count,
    Derive,
    Expect,
    Field,
    Greatest,
    Json,
    Latest,
    Least,
    Lookup,
    Pipeline,
    Rows,
    Sessions,
    Sum,
    Topic,
    Totals,
    Windows,
)

__all__ = [
    "CLICKSTREAM",
    "Count",
    "Derive",
    "Expect",
    "Field",
    "Greatest",
    "Json",
    "Latest",
    "Least",
    "Lookup",
    "Pipeline",
    "Rows",
    "Sessions",
    "Sum",
    "Topic",
    "Totals",
    "Windows",
]
