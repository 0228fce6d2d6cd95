"""The parallel consumer: more handlers at work than a topic has partitions."""

from headrace.parallel.app import App
from headrace.parallel.batching import Batch
from headrace.parallel.commit import Auto, GapSafe, OffsetStrategy, PerBatch, PerRecord
from headrace.parallel.options import RebalanceListener

__all__ = [
    "App",
    "Auto",
    "Batch",
    "GapSafe",
    "OffsetStrategy",
    "PerBatch",
    "PerRecord",
    "RebalanceListener",
]
