"""At most so many records a second, in the long run and within each tenth of one."""


class RateLimit:
    """A bucket of tokens: filled at the rate, never fuller than a tenth of a second's worth.

    >>> limit = RateLimit(100, now=0.0)
    >>> limit.allowed(50, now=0.0)
    10
    >>> limit.spend(10)
    >>> limit.allowed(50, now=0.05)
    5
    >>> limit.spend(5)
    >>> round(limit.ready_at(0.05), 3)
    0.06
    """

    __slots__ = ("_at", "_burst", "_per_second", "_tokens")

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._burst = max(1.0, per_second / 10)
        self._tokens = self._burst
        self._at = now

    def allowed(self, wanted: int, now: float) -> int:
        """How many of these may start now."""
        self._fill(now)
        return min(wanted, int(self._tokens + 1e-9))

    def spend(self, count: int) -> None:
        self._tokens -= count

    def ready_at(self, now: float) -> float:
        """When the next one may start."""
        self._fill(now)
        return now + max(0.0, 1 - self._tokens) / self._per_second

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._per_second)
        self._at = max(now, self._at)
