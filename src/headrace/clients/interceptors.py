"""Looking at every record before it is sent, and at every outcome."""

import logging
from collections.abc import Sequence

from headrace.clients.deliveries import Delivery, Outgoing

logger = logging.getLogger("headrace.interceptors")


class Interceptor:
    """Base of interceptors: override what you need.

    >>> class Stamp(Interceptor):
    ...     def before_send(self, record: Outgoing) -> Outgoing:
    ...         return record._replace(headers=[*record.headers, ("source", b"shop")])
    """

    def before_send(self, record: Outgoing) -> Outgoing:
        """Called on the sending thread; the record it returns is sent."""
        return record

    def on_outcome(self, delivery: Delivery) -> None:
        """Called when the record was acknowledged or failed, on the producer's own thread."""


class Interceptors:
    """Calls interceptors in turn. One that raises is reported once, and left out from then on."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._active = list(interceptors)
        self.broken: list[Interceptor] = []

    def __bool__(self) -> bool:
        return bool(self._active)

    def before_send(self, record: Outgoing) -> Outgoing:
        for interceptor in tuple(self._active):
            try:
                replaced = interceptor.before_send(record)
                if not isinstance(replaced, Outgoing):
                    raise TypeError(f"before_send returned {type(replaced).__name__}, no record")
                record = replaced
            except Exception:
                self._leave_out(interceptor)
        return record

    def on_outcome(self, delivery: Delivery) -> None:
        for interceptor in tuple(self._active):
            try:
                interceptor.on_outcome(delivery)
            except Exception:
                self._leave_out(interceptor)

    def _leave_out(self, interceptor: Interceptor) -> None:
        if interceptor in self._active:
            self._active.remove(interceptor)
            self.broken.append(interceptor)
            logger.exception("interceptor %r raised and is left out", type(interceptor).__name__)
