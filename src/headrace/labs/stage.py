"""What a lab works with: a cluster, topics of its own, a notebook for facts and checks."""

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.clients import Admin, Connection, Reader
from headrace.errors import HeadraceError, OperationFailed
from headrace.local import LocalCluster
from headrace.model import Deadline, Record
from headrace.observe import Progress


@dataclass(frozen=True)
class Check:
    """One part of a promise, and whether it held."""

    claim: str
    held: bool


class Stage:
    """One lab's stage. Topics and groups get unique names and are removed at the end."""

    def __init__(
        self, connection: Connection, cluster: LocalCluster | None, progress: Progress
    ) -> None:
        self.connection = connection
        self.admin = Admin(connection)
        self.facts: dict[str, Any] = {}
        self.checks: list[Check] = []
        self._cluster = cluster
        self._progress = progress
        self._topics: list[str] = []
        self._groups: list[str] = []

    @property
    def cluster(self) -> LocalCluster:
        """The local cluster, for faults and for a look at its files."""
        if self._cluster is None:
            raise OperationFailed(
                "this lab works on a local cluster only", hint="run it without --profile"
            )
        return self._cluster

    def say(self, text: str) -> None:
        """What happens now."""
        self._progress.step(text)

    def topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Make a topic of this name with something unique behind it."""
        unique = f"{name}-{secrets.token_hex(3)}"
        self.admin.create_topic(unique, partitions, replication, configs)
        self._topics.append(unique)
        return unique

    def group(self, name: str) -> str:
        """A group's name with something unique behind it."""
        unique = f"{name}-{secrets.token_hex(3)}"
        self._groups.append(unique)
        return unique

    def records(self, topic: str) -> list[Record]:
        """All that is in the topic now, by partition and offset."""
        with Reader(topic, connection=self.connection) as reader:
            records = (record for batch in reader.batches() for record in batch)
            return sorted(records, key=lambda record: (record.partition, record.offset))

    def fact(self, name: str, value: Any) -> None:
        """Something observed; lists of dicts are shown as tables."""
        self.facts[name] = value

    def check(self, claim: str, held: bool) -> None:
        """One part of the promise, judged by what was observed."""
        self.checks.append(Check(claim, bool(held)))

    def wait_until(
        self, condition: Callable[[], bool], what: str, seconds: float = 60, every: float = 0.2
    ) -> float:
        """Wait for a condition; returns how long it took, or raises when it never came true."""
        deadline = Deadline(seconds)
        for _ in deadline.polls(every):
            with contextlib.suppress(HeadraceError):  # a dying broker may fail to answer
                if condition():
                    return seconds - deadline.remaining()
        raise OperationFailed(f"waited {seconds:.0f} s in vain: {what}", hint="see `headrace logs`")

    def clean_up(self) -> None:
        """Remove what the lab made, as far as the cluster lets us."""
        for group in self._groups:
            with contextlib.suppress(HeadraceError):
                self.admin.delete_group(group)
        for topic in self._topics:
            with contextlib.suppress(HeadraceError):
                self.admin.delete_topic(topic)

    @property
    def held(self) -> bool:
        """All parts of the promise held, and there was at least one."""
        return bool(self.checks) and all(check.held for check in self.checks)


def counts(values: Sequence[Any]) -> tuple[set[Any], int]:
    """The distinct values, and how many were repeats."""
    distinct = set(values)
    return distinct, len(values) - len(distinct)
