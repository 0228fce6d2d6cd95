"""An assignor decides who gets which partition, and how many of them move when a member joins.

Eight partitions, three members, then a fourth. Range and round robin deal out anew each time: all
partitions are given up, and most of them change hands, though two would do. The sticky ones move
two. The eager one has all of them given up all the same; cooperative sticky and the server's own
protocol take those two and no others. librdkafka has no eager sticky assignor, so Kafka's own
VerifiableConsumer shows it. A function of one's own deals out as it likes, for a number of
instances that is known to all: they start again when it changes.
"""

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import orjson

from headrace.config import Places
from headrace.config.consumer_settings import Assignor
from headrace.labs.stage import Stage
from headrace.local.servers import Kafka
from headrace.model import TopicPartition
from headrace.observe import Silent
from headrace.parallel import App, RebalanceListener
from headrace.parallel.engine.running import RunningApp

NEEDS_FAULTS = True  # not for a fault: Kafka's own consumer runs on a local cluster's jars
PARTITIONS = 8
ALL = list(range(PARTITIONS))
MEMBERS = 3
MUST_MOVE = PARTITIONS // (MEMBERS + 1)
HEARTBEAT_MS = 500
OWN = "own function"
EAGER_STICKY = "sticky, eager (Java)"
KAFKAS_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
KAFKAS_STICKY = "org.apache.kafka.clients.consumer.StickyAssignor"
SECONDS_TO_END = 10.0

Shares = list[list[int]]  # the partitions of each member, in the order in which they joined


@dataclass
class Dealing:
    """How one assignor dealt out, before and after the fourth joined."""

    name: str
    before: Shares
    after: Shares
    revoked: int  # how many partitions were given up for the fourth

    @property
    def moved(self) -> int:
        """How many partitions another member has now."""
        owners = {p: member for member, share in enumerate(self.before) for p in share}
        return sum(owners[p] != member for member, share in enumerate(self.after) for p in share)

    @property
    def is_complete(self) -> bool:
        return all(is_dealt(shares) for shares in (self.before, self.after))

    def row(self) -> dict[str, object]:
        return {
            "assignor": self.name,
            "three members": shown(self.before),
            "four members": shown(self.after),
            "given up": self.revoked,
            "moved": self.moved,
        }


def is_dealt(shares: Shares) -> bool:
    """Whether each partition has one member.

    >>> is_dealt([[0, 1, 2], [3, 4, 5], [6, 7]]), is_dealt([[0, 1, 2], [2, 3, 4, 5, 6, 7]])
    (True, False)
    """
    return sorted(partition for share in shares for partition in share) == ALL


def is_even(shares: Shares) -> bool:
    sizes = [len(share) for share in shares]
    return is_dealt(shares) and max(sizes) - min(sizes) <= 1


def shown(shares: Shares) -> str:
    return " | ".join(" ".join(map(str, share)) for share in shares)


def run(stage: Stage) -> None:
    topic = stage.topic("dealt", PARTITIONS)
    ways: list[Callable[[], Dealing]] = [
        lambda: deal_by_java(stage, topic),
        *(dealer(stage, topic, assignor) for assignor in get_args(Assignor)),
        lambda: deal_by_function(stage, topic),
    ]
    stage.say(
        f"{MEMBERS} members share {PARTITIONS} partitions in {len(ways)} ways, then one joins"
    )
    with ThreadPoolExecutor(len(ways)) as side_by_side:
        dealings = [future.result() for future in [side_by_side.submit(way) for way in ways]]
    by_name = {dealing.name: dealing for dealing in sorted(dealings, key=lambda d: d.name)}
    stage.fact("who gets what", [dealing.row() for dealing in by_name.values()])
    judge(stage, by_name)


def judge(stage: Stage, by_name: dict[str, Dealing]) -> None:
    stage.check(
        "each time every partition has one member, before and after",
        all(dealing.is_complete for dealing in by_name.values()),
    )
    stage.check(
        "range: neighbours stay together",
        by_name["range"].before == [[0, 1, 2], [3, 4, 5], [6, 7]]
        and by_name["range"].after == [[0, 1], [2, 3], [4, 5], [6, 7]],
    )
    stage.check(
        "round robin: one after the other",
        by_name["roundrobin"].before == [[0, 3, 6], [1, 4, 7], [2, 5]]
        and by_name["roundrobin"].after == [[0, 4], [1, 5], [2, 6], [3, 7]],
    )
    for name in ("range", "roundrobin"):
        dealing = by_name[name]
        stage.check(
            f"{name}: everything is given up, and more moves than must",
            dealing.revoked == PARTITIONS and dealing.moved > MUST_MOVE,
        )
    for name in ("cooperative-sticky", "server", EAGER_STICKY):
        given_up = PARTITIONS if name == EAGER_STICKY else MUST_MOVE
        dealing = by_name[name]
        stage.check(
            f"{name}: {given_up} are given up, {MUST_MOVE} move",
            dealing.revoked == given_up and dealing.moved == MUST_MOVE,
        )
    own = by_name[OWN]
    stage.check(
        "own function: the first instance has half of them, however many there are",
        own.before[0] == own.after[0] == ALL[: PARTITIONS // 2],
    )


# --- the assignors of the group ---


@dataclass
class Group:
    """Members that run in this program."""

    stage: Stage
    topic: str
    assignor: Assignor
    running: list[RunningApp] = field(default_factory=list)
    revoked: list[TopicPartition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._name = self.stage.group(self.assignor)

    @contextlib.contextmanager
    def member(self) -> Iterator[None]:
        name = f"member-{len(self.running) + 1}"  # by which range and round robin go
        heartbeat = {} if self.assignor == "server" else {"heartbeat.interval.ms": HEARTBEAT_MS}
        app = App(self.stage.connection)
        app.consumer(
            self.topic,
            group=self._name,
            name=name,
            concurrency=1,
            assignor=self.assignor,
            listener=RebalanceListener(revoked=self.revoked.extend, lost=self.revoked.extend),
            settings={"client.id": name, **heartbeat},
        )(ignore)
        with app.running() as running:
            self.running.append(running)
            yield

    def shares(self) -> Shares:
        return [held(running) for running in self.running]


def ignore(_value: bytes) -> None:
    """Who has which partition does not depend on what is done with its records."""


def held(running: RunningApp) -> list[int]:
    return [partition.partition for partition in running.status()[0].partitions]


def dealer(stage: Stage, topic: str, assignor: Assignor) -> Callable[[], Dealing]:
    return lambda: deal_by_assignor(stage, topic, assignor)


def deal_by_assignor(stage: Stage, topic: str, assignor: Assignor) -> Dealing:
    group = Group(stage, topic, assignor)
    with contextlib.ExitStack() as members:
        for _ in range(MEMBERS):
            members.enter_context(group.member())
        before = settled(stage, assignor, group.shares)
        group.revoked.clear()
        members.enter_context(group.member())
        after = settled(stage, assignor, group.shares)
        return Dealing(assignor, before, after, len(group.revoked))


def settled(stage: Stage, name: str, shares: Callable[[], Shares]) -> Shares:
    stage.wait_until(lambda: is_even(shares()), f"{name}: all partitions are dealt out")
    return shares()


# --- a function of one's own ---


def large_first(
    instance: int, instances: int, partitions: Sequence[TopicPartition]
) -> Sequence[TopicPartition]:
    """The first instance has the large machine and half of the partitions; the others the rest."""
    half = len(partitions) // 2
    return partitions[:half] if instance == 0 else partitions[half:][instance - 1 :: instances - 1]


def deal_by_function(stage: Stage, topic: str) -> Dealing:
    """All instances start again when there is one more: each must know how many there are."""
    group = stage.group("own-function")
    revoked: list[TopicPartition] = []
    before = shares_by_function(stage, topic, group, MEMBERS, revoked)
    after = shares_by_function(stage, topic, group, MEMBERS + 1, [])
    return Dealing(OWN, before, after, len(revoked))


def shares_by_function(
    stage: Stage, topic: str, group: str, instances: int, revoked: list[TopicPartition]
) -> Shares:
    def declared() -> App:
        app = App(stage.connection)
        app.consumer(
            topic,
            group=group,
            concurrency=1,
            assignment=large_first,
            listener=RebalanceListener(revoked=revoked.extend),
        )(ignore)
        return app

    with contextlib.ExitStack() as ends:
        running = [
            ends.enter_context(declared().running(instance=number, instances=instances))
            for number in range(instances)
        ]
        for each in running:
            each.wait_until_joined()
        return [held(each) for each in running]


# --- eager sticky, by Kafka's own consumer ---


class JavaMember:
    """Kafka's VerifiableConsumer as a process; it tells as JSON what it is given and gives up."""

    def __init__(self, command: Sequence[str]) -> None:
        self.partitions: list[int] = []
        self.revoked = 0
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread = threading.Thread(target=self._listen, name="java-member", daemon=True)
        self._thread.start()

    def __enter__(self) -> "JavaMember":
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._thread.join(SECONDS_TO_END)

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            event = orjson.loads(line)
            named = [partition["partition"] for partition in event.get("partitions", ())]
            if event["name"] == "partitions_assigned":  # eager: the whole of it
                self.partitions = sorted(named)
            elif event["name"] == "partitions_revoked":
                self.partitions = []
                self.revoked += len(named)


def deal_by_java(stage: Stage, topic: str) -> Dealing:
    kafka = Kafka.prepare(Places.from_environment().cache, Silent())
    group = stage.group("eager-sticky")
    members: list[JavaMember] = []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-lab-") as folder,
        contextlib.ExitStack() as ends,
    ):
        settings = Path(folder) / "consumer.properties"
        settings.write_text(f"heartbeat.interval.ms={HEARTBEAT_MS}\n")
        command = java_command(kafka, stage, topic, group, settings)

        def shares() -> Shares:
            return [list(member.partitions) for member in members]

        members += [ends.enter_context(JavaMember(command)) for _ in range(MEMBERS)]
        before = settled(stage, EAGER_STICKY, shares)
        given_up = sum(member.revoked for member in members)
        members.append(ends.enter_context(JavaMember(command)))
        after = settled(stage, EAGER_STICKY, shares)
        revoked = sum(member.revoked for member in members) - given_up
        return Dealing(EAGER_STICKY, before, after, revoked)


def java_command(kafka: Kafka, stage: Stage, topic: str, group: str, settings: Path) -> list[str]:
    return kafka.command(
        KAFKAS_CONSUMER,
        *("--bootstrap-server", stage.connection.bootstrap, "--topic", topic),
        *("--group-id", group, "--assignment-strategy", KAFKAS_STICKY),
        *("--command-config", str(settings)),
        options=["-Dlog4j2.level=ERROR", "-Xmx128m"],
    )
