"""A thin, typed layer on confluent-kafka."""

from headrace.clients.admin import Admin
from headrace.clients.connection import Connection, resolve
from headrace.clients.deliveries import Acknowledged, Delivery, FailedRecord, Outgoing
from headrace.clients.interceptors import Interceptor
from headrace.clients.many import Many
from headrace.clients.partitioners import RoundRobin, Sticky, ToPartition
from headrace.clients.producer import Producer
from headrace.clients.reader import Reader

__all__ = [
    "Acknowledged",
    "Admin",
    "Connection",
    "Delivery",
    "FailedRecord",
    "Interceptor",
    "Many",
    "Outgoing",
    "Producer",
    "Reader",
    "RoundRobin",
    "Sticky",
    "ToPartition",
    "resolve",
]
