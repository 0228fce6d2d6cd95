"""When a fourth consumer joins, only what must move is revoked; the others never pause.

Three members hold six partitions and handle a steady stream, a second and a half for each record;
heartbeats go every three seconds. A fourth joins. In a cooperative group one partition changes
hands, and the members that give nothing up begin one record after the other all the while. Beside
it, on the same stream and at the same moment, a group with an eager assignor: everybody gives up
everything, and nobody begins a record until the last one has finished what it had begun. Pauses
are measured by the handlers' own clock, from the beginning of a record to that of the next one of
its partition.
"""

import asyncio
import contextlib
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from headrace.clients import Producer
from headrace.config.consumer_settings import Assignor
from headrace.labs.consuming import Load, by_turns
from headrace.labs.stage import Stage
from headrace.model import Record, TopicPartition
from headrace.parallel import App, RebalanceListener
from headrace.parallel.engine.running import RunningApp

PARTITIONS = 6
MEMBERS = 3
RECORDS_PER_SECOND = 120  # twenty in each partition
HANDLER_SECONDS = 1.5
STEADY_SECONDS = 2.0
HEARTBEAT_MS = 3_000

Shares = list[list[int]]


@dataclass
class Team:
    """The members of one group: what they began when, and what was taken from them."""

    stage: Stage
    topic: str
    assignor: Assignor
    begun: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    handled: Counter[int] = field(default_factory=Counter)
    revocations: list[int] = field(default_factory=list)  # all of them, at the end too
    revoked: list[int] = field(default_factory=list)  # those because of the fourth
    running: list[RunningApp] = field(default_factory=list)
    before: Shares = field(default_factory=list)
    after: Shares = field(default_factory=list)
    joined_at: float = 0.0

    def __post_init__(self) -> None:
        self._group = self.stage.group(self.assignor)
        self._noting = threading.Lock()

    @contextlib.contextmanager
    def member(self) -> Iterator[None]:
        """One more member, until the end of the block."""
        app = App(self.stage.connection)
        name = f"member-{len(self.running) + 1}"
        app.consumer(
            self.topic,
            group=self._group,
            name=name,
            order="none",
            concurrency=1_000,
            assignor=self.assignor,
            listener=RebalanceListener(revoked=self._taken, lost=self._taken),
            settings={"heartbeat.interval.ms": HEARTBEAT_MS, "client.id": name},
        )(self._handler())
        with app.running() as running:
            self.running.append(running)
            yield

    def _handler(self) -> Callable[..., object]:
        async def handle(value: bytes, record: Record) -> None:
            with self._noting:
                self.begun[record.partition].append(time.monotonic())
            await asyncio.sleep(HANDLER_SECONDS)
            with self._noting:
                self.handled[int(value)] += 1

        return handle

    def _taken(self, partitions: list[TopicPartition]) -> None:
        with self._noting:
            self.revocations += [partition.partition for partition in partitions]

    def shares(self) -> Shares:
        """The partitions of each member."""
        found = [running.status()[0].partitions for running in self.running]
        return [[partition.partition for partition in share] for share in found]

    def is_settled(self) -> bool:
        """Whether every member has its share, and every partition its member."""
        shares = self.shares()
        dealt = sorted(partition for share in shares for partition in share)
        return all(shares) and dealt == list(range(PARTITIONS))

    @property
    def moved(self) -> list[int]:
        """The partitions that another member has now."""
        owners = {p: member for member, share in enumerate(self.before) for p in share}
        return [p for member, share in enumerate(self.after) for p in share if owners[p] != member]

    @property
    def others(self) -> list[int]:
        """The partitions of the members that give nothing up."""
        return [p for share in self.before for p in share if not set(share) & set(self.moved)]

    def pauses(self, partitions: list[int]) -> list[float]:
        """The longest time without a new record since the fourth joined, for each of these."""
        return [
            max(
                (
                    later - earlier
                    for earlier, later in pairwise(self.begun[p])
                    if later > self.joined_at
                ),
                default=math.inf,  # it never went on
            )
            for p in partitions
        ]

    def row(self) -> dict[str, object]:
        beside = sorted(set(range(PARTITIONS)) - set(self.moved) - set(self.others))
        pauses = {
            "members that give nothing up": self.others,
            "what the giver keeps": beside,
            "what moves": self.moved,
        }
        return {
            "assignor": self.assignor,
            "partitions moved": len(self.moved),
            "revoked": len(self.revoked),
            **{f"pause (s): {of}": longest(self.pauses(p)) for of, p in pauses.items()},
        }


def longest(pauses: list[float]) -> float | None:
    return round(max(pauses), 2) if pauses else None


def run(stage: Stage) -> None:
    topic = stage.topic("rides", PARTITIONS)
    cooperative, eager = Team(stage, topic, "cooperative-sticky"), Team(stage, topic, "range")
    teams = (cooperative, eager)
    with contextlib.ExitStack() as members:
        with (
            Producer(stage.connection) as producer,
            Load(by_turns(producer, topic, PARTITIONS), RECORDS_PER_SECOND) as load,
        ):
            for team in teams * MEMBERS:
                members.enter_context(team.member())
            wait_until_settled(stage, *teams)
            time.sleep(STEADY_SECONDS)  # steady work, so that a pause stands out
            stage.say("a fourth member joins each group")
            join_fourth(stage, members, *teams)
            time.sleep(STEADY_SECONDS)  # to see the end of every pause
        wait_until_handled(stage, load.sent, *teams)
    judge(stage, load.sent, cooperative, eager)


def wait_until_settled(stage: Stage, *teams: Team) -> None:
    stage.wait_until(lambda: all(team.is_settled() for team in teams), "every member has a share")


def wait_until_handled(stage: Stage, sent: int, *teams: Team) -> None:
    stage.wait_until(lambda: all(len(team.handled) == sent for team in teams), "all is handled")


def join_fourth(stage: Stage, members: contextlib.ExitStack, *teams: Team) -> None:
    for team in teams:
        team.before, team.joined_at = team.shares(), time.monotonic()
        team.revocations.clear()
    for team in teams:
        members.enter_context(team.member())
    wait_until_settled(stage, *teams)
    for team in teams:
        team.after, team.revoked = team.shares(), list(team.revocations)


def judge(stage: Stage, sent: int, cooperative: Team, eager: Team) -> None:
    stage.fact("a fourth member joins", [cooperative.row(), eager.row()])
    stage.check(
        "cooperative: one partition moves, and only it is revoked",
        len(cooperative.moved) == 1 and cooperative.revoked == cooperative.moved,
    )
    stage.check(
        "eager: every partition is revoked, whether it moves or not",
        sorted(eager.revoked) == list(range(PARTITIONS)) and len(eager.moved) < PARTITIONS,
    )
    shortest_eager = min(eager.pauses(list(range(PARTITIONS))))
    stage.check(
        "eager: every partition pauses for half a record's time or longer",
        shortest_eager >= HANDLER_SECONDS / 2,
    )
    stage.check(
        "cooperative: members that give nothing up pause for less than half as long as any eager",
        max(cooperative.pauses(cooperative.others), default=math.inf) < shortest_eager / 2,
    )
    for team in (cooperative, eager):
        stage.check(
            f"{team.assignor}: every record is handled, none twice",
            team.handled == Counter(range(sent)),
        )
