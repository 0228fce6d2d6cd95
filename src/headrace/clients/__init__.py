"""A thin, typed layer on confluent-kafka."""

from headrace.clients.admin import Admin
from headrace.clients.connection import Connection, resolve
from headrace.clients.producer import Acknowledged, Delivery, Producer
from headrace.clients.reader import Reader

__all__ = ["Acknowledged", "Admin", "Connection", "Delivery", "Producer", "Reader", "resolve"]
