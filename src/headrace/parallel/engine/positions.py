"""Where a consumer begins in the partitions it is given."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from headrace.clients.consumer import CommittedOffset, ConsumerClient
from headrace.errors import ForeignMetadata, KafkaFailure, NoPosition
from headrace.model import Deadline, Position, TopicPartition
from headrace.observe.events import Event, MapIgnored
from headrace.parallel.state import Finished, decode

T = TypeVar("T")
SECONDS_TO_FIND = 60.0


class Begin(NamedTuple):
    """Where to begin in a partition, what beyond it is finished, and what is committed."""

    offset: int
    finished: Finished = ()
    committed: tuple[int, str] | None = None


class Positions:
    """Asks for what the group has committed, and where it has not, for the start."""

    def __init__(
        self,
        client: ConsumerClient,
        start: Position | None,
        consumer: str,
        tell: Callable[[Event], None],
        given_up: Callable[[], bool],
        *,
        remembers: bool,
    ) -> None:
        self._client = client
        self._start = start
        self._consumer = consumer
        self._tell = tell
        self._given_up = given_up  # whether waiting for brokers has become pointless
        self._remembers = remembers

    def begin(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Begin]:
        """Where to begin in each; brokers that are away are waited for."""
        if not partitions:
            return {}
        committed = self._patiently(lambda: self._client.committed(partitions))
        begins = {p: self._restored(p, known) for p, known in committed.items() if known}
        unknown = [p for p in partitions if p not in begins]
        return begins | {p: Begin(offset) for p, offset in self.start(unknown).items()}

    def start(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The start of partitions that have no position."""
        if not partitions:
            return {}
        if self._start is None:
            raise NoPosition(
                f"the group of {self._consumer} has no offset for "
                f"{', '.join(map(str, partitions))}, and start='none' lets it choose none",
                hint="set it with `headrace group reset`, or use start='earliest' or 'latest'",
                partitions=[str(p) for p in partitions],
            )
        return self.resolve(partitions, self._start)

    def resolve(
        self, partitions: Sequence[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        return self._patiently(lambda: self._client.begins(partitions, position))

    def _restored(self, partition: TopicPartition, known: CommittedOffset) -> Begin:
        finished: Finished = ()
        if self._remembers:
            try:
                finished = decode(known.offset, known.metadata)
            except ForeignMetadata as error:
                self._tell(MapIgnored(self._consumer, partition, error.message))
        return Begin(known.offset, finished, (known.offset, known.metadata))

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while a broker is away: a leader's election takes seconds."""
        deadline = Deadline(SECONDS_TO_FIND)
        for _ in deadline.polls(0.5):
            try:
                return ask()
            except KafkaFailure:
                if deadline.expired or self._given_up():
                    raise
        return ask()
