"""Pipelines from Kafka to tables: declared as data, run exactly once by Spark.

>>> from headrace.spark.pipelines import CLICKSTREAM
>>> [table.name for table in CLICKSTREAM.tables]
['events', 'sessions', 'funnel', 'revenue']
"""

from headrace.spark.pipelines.clickstream import CLICKSTREAM
from headrace.spark.pipelines.databases import INVOICES, DatabaseTable
from headrace.spark.pipelines.definition import (
    Count,
    Derive,
    Expect,
    Greatest,
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
from headrace.spark.pipelines.factory import FACTORY
from headrace.spark.pipelines.fields import Avro, Csv, Field, Json
from headrace.spark.pipelines.forward_definition import Forward

__all__ = [
    "CLICKSTREAM",
    "FACTORY",
    "INVOICES",
    "Avro",
    "Count",
    "Csv",
    "DatabaseTable",
    "Derive",
    "Expect",
    "Field",
    "Forward",
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
