"""Faults for tests, undone afterwards."""

from headrace.local import LocalCluster


class Faults:
    """The faults of a local cluster. `heal` starts and resumes whatever was hurt."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._hurt: set[int] = set()

    def kill(self, broker_id: int) -> None:
        """SIGKILL."""
        self._hurt.add(broker_id)
        self._cluster.kill(broker_id)

    def stop(self, broker_id: int) -> None:
        """Orderly stop."""
        self._hurt.add(broker_id)
        self._cluster.stop(broker_id)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP."""
        self._hurt.add(broker_id)
        self._cluster.pause(broker_id)

    def start(self, broker_id: int) -> None:
        """Start or resume the broker; returns once its replicas are in sync."""
        self._cluster.start(broker_id)
        self._hurt.discard(broker_id)

    def heal(self) -> None:
        """Bring every hurt broker back."""
        if self._hurt:
            self._cluster.up()
            self._hurt.clear()
