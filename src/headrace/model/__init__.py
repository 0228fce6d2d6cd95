"""Plain values that every room shares. No I/O here."""

from headrace.model.deadline import Deadline
from headrace.model.position import AtOffset, AtTime, Earliest, Latest, Position, parse_position
from headrace.model.record import Header, Record, TimestampType, TopicPartition

__all__ = [
    "AtOffset",
    "AtTime",
    "Deadline",
    "Earliest",
    "Header",
    "Latest",
    "Position",
    "Record",
    "TimestampType",
    "TopicPartition",
    "parse_position",
]
