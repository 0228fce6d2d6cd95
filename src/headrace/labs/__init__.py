"""Promises acted out on a live cluster, one file each.

A lab's module opens with its promise: the first line of its docstring. `run(stage)` does the
work, gathers facts and checks the promise against them. `BROKERS` says how many it needs,
`NEEDS_FAULTS` that it stops, kills or looks into brokers of a local cluster, `NEEDS_REGISTRY` and
`NEEDS_CONNECT` that a schema registry and a Connect worker must run beside them.
"""

from headrace.labs.catalog import Lab, find_labs, get_lab
from headrace.labs.runner import LabResult, run_labs
from headrace.labs.stage import Stage

__all__ = ["Lab", "LabResult", "Stage", "find_labs", "get_lab", "run_labs"]
