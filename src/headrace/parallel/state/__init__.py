"""What the parallel consumer knows: pure, without I/O, clock, threads or locks.

One `Assignment` for each time a partition is assigned: a `Tracker` (which offsets are finished), a
`Shards` (which records must wait for which) and a number. The codec writes what a tracker knows
into the metadata of a commit and reads it back.
"""

from headrace.parallel.state.assignment import Assignment
from headrace.parallel.state.codec import LIMIT, Finished, decode, encode
from headrace.parallel.state.shards import Order, Shards
from headrace.parallel.state.tracker import Commit, Tracker

__all__ = [
    "LIMIT",
    "Assignment",
    "Commit",
    "Finished",
    "Order",
    "Shards",
    "Tracker",
    "decode",
    "encode",
]
