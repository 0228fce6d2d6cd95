"""`headrace topic`: what it prints, what it changes, what it refuses."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from headrace.clients import Admin, Producer
from support.cli import Cli, Done, assert_refusal, together
from support.waiting import eventually

MakeTopic = Callable[..., str]
Calls = dict[tuple[str, ...], "Future[tuple[Done, float]]"]
PARTITION_FIELDS = {"id", "leader", "replicas", "isr", "earliest", "latest"}


@pytest.fixture(scope="module", autouse=True)
def calls_into_nowhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    """Commands to a cluster that is not there. They take long, so they begin before the others."""
    nowhere = Cli(tmp_path_factory.mktemp("nowhere"), {"HEADRACE_BOOTSTRAP": "127.0.0.1:1"})

    def timed(command: tuple[str, ...]) -> tuple[Done, float]:
        started = time.monotonic()
        done = nowhere(*command, status=1)
        return done, time.monotonic() - started

    commands = [
        ("topic", "list"),
        ("topic", "create", "t"),
        ("group", "list"),
        ("group", "describe", "g"),
        ("produce", "t"),
        ("consume", "t"),
        ("doctor", "-o", "json"),
    ]
    with ThreadPoolExecutor(len(commands)) as pool:
        yield {command: pool.submit(timed, command) for command in commands}


def test_create_prints_the_topic_that_the_cluster_now_has(headrace: Cli, admin: Admin) -> None:
    """`topic create` makes what was asked for and prints the fields of the contract."""
    name = "made-by-hand.1_x"
    made = headrace.json(
        *("topic", "create", name, "-p", "3", "-r", "3"),
        *("-c", "retention.ms=60000", "-c", "cleanup.policy=compact"),
    )
    try:
        assert made["name"] == name
        assert [p["id"] for p in made["partitions"]] == [0, 1, 2]
        for partition in made["partitions"]:
            assert partition.keys() >= PARTITION_FIELDS
            assert partition["leader"] in partition["replicas"]
            assert sorted(partition["replicas"]) == sorted(partition["isr"]) == [1, 2, 3]
            assert (partition["earliest"], partition["latest"]) == (0, 0)
        assert made["configs"]["retention.ms"] == "60000"
        assert made["configs"]["cleanup.policy"] == "compact"
        assert {"retention.ms", "cleanup.policy"} <= set(made["overrides"])
        assert len(admin.topic(name).partitions) == 3
    finally:
        admin.delete_topic(name)


def test_replication_left_out_is_what_the_cluster_can_give(headrace: Cli, admin: Admin) -> None:
    """On three brokers a topic has three copies and stays writable with one broker dead."""
    made = headrace.json("topic", "create", "default-copies")
    admin.delete_topic("default-copies")
    assert len(made["partitions"][0]["replicas"]) == 3
    assert made["configs"]["min.insync.replicas"] == "2"


def test_list_shows_topics_and_hides_internal_ones(headrace: Cli, admin: Admin) -> None:
    """`topic list` is a JSON array; names with two underscores need --internal."""
    admin.create_topic("seen", 2)
    admin.create_topic("__unseen")
    try:
        shown = {t["name"]: t for t in headrace.json("topic", "list")}
        everything = headrace("topic", "list", "--internal", "-o", "ndjson").lines
    finally:
        admin.delete_topic("seen")
        admin.delete_topic("__unseen")
    assert shown["seen"]["partitions"] == 2
    assert shown["seen"]["replication"] == 3
    assert "__unseen" not in shown
    assert {"seen", "__unseen"} <= {t["name"] for t in everything}


def test_describe_tells_where_records_begin_and_end(
    headrace: Cli, kafka_topic: str, admin: Admin
) -> None:
    """`topic describe` counts what was written; as a table it says the same to people."""
    with Producer(admin.connection) as producer:
        for number in range(7):
            producer.send(kafka_topic, str(number))
    (partition,) = headrace.json("topic", "describe", kafka_topic)["partitions"]
    table = headrace("topic", "describe", kafka_topic)
    assert (partition["earliest"], partition["latest"]) == (0, 7)
    assert kafka_topic in table.stdout
    assert table.stderr == ""


def test_alter_adds_partitions_and_changes_only_what_it_names(
    headrace: Cli, make_topic: MakeTopic
) -> None:
    """`topic alter` leaves other settings alone, and an empty value is the default again."""
    topic = make_topic(configs={"max.message.bytes": "2000000"})
    grown = headrace.json("topic", "alter", topic, "-p", "3", "-c", "retention.ms=1234567")
    assert len(grown["partitions"]) == 3
    assert grown["configs"]["retention.ms"] == "1234567"
    assert grown["configs"]["max.message.bytes"] == "2000000"
    back = headrace.json("topic", "alter", topic, "-c", "retention.ms=")
    assert back["overrides"] == ["max.message.bytes"]
    assert back["configs"]["retention.ms"] == "604800000"


def test_delete_needs_yes(headrace: Cli, admin: Admin) -> None:
    """Without --yes nothing is deleted and the loss is spelt out; with it, the topic is gone."""
    admin.create_topic("to-delete", 2)
    with Producer(admin.connection) as producer:
        producer.send("to-delete", "a record")
    refused = headrace.refused(2, "topic", "delete", "to-delete")
    assert "2 partitions" in refused.error
    assert "1 records" in refused.error
    assert "--yes" in refused.hint
    assert admin.has_topic("to-delete")
    gone = headrace.json("topic", "delete", "to-delete", "--yes")
    assert gone == {"name": "to-delete", "deleted": True}
    # Another broker than the one that was asked may hear of it a moment later.
    eventually(lambda: not admin.has_topic("to-delete"), "the topic is gone")


@pytest.mark.parametrize("name", ["a topic", "", "..", "x" * 250, "ünïcode", "a/b", "a\nb"])
def test_an_illegal_name_is_refused(headrace: Cli, name: str) -> None:
    """What no topic can be called is bad input, told without asking the cluster."""
    refused = headrace.refused(2, "topic", "create", name)
    assert "cannot be a topic's name" in refused.error


def test_what_the_cluster_could_only_refuse_is_bad_input(
    headrace: Cli, make_topic: MakeTopic, admin: Admin
) -> None:
    """Exit 2, a reason with the values in it, a next step, and nothing is changed."""
    topic = make_topic(partitions=2)

    existing = headrace.refused(2, "topic", "create", topic)
    assert topic in existing.error

    copies = headrace.refused(2, "topic", "create", "too-many", "-r", "4")
    assert "4" in copies.error
    assert "-r 1 to 3" in copies.hint

    none = headrace.refused(2, "topic", "create", "none", "-p", "0")
    assert "0 partitions" in none.error

    fewer = headrace.refused(2, "topic", "alter", topic, "-p", "1")
    assert "2 partitions" in fewer.error

    nothing = headrace.refused(2, "topic", "alter", topic)
    assert "nothing to alter" in nothing.error

    shapeless = headrace.refused(2, "topic", "alter", topic, "-c", "retention.ms")
    assert "retention.ms" in shapeless.error

    assert len(admin.topic(topic).partitions) == 2
    assert not {"too-many", "none"}.intersection(admin.topic_names())


@pytest.mark.parametrize("setting", ["retention.mz=1", "retention.ms=soon"])
def test_an_unknown_setting_or_value_is_refused(
    headrace: Cli, kafka_topic: str, admin: Admin, setting: str
) -> None:
    """A setting that Kafka does not know is bad input for create and for alter."""
    name = setting.partition("=")[0]
    create = headrace.refused(2, "topic", "create", "misconfigured", "-c", setting)
    alter = headrace.refused(2, "topic", "alter", kafka_topic, "-c", setting)
    assert name in create.error
    assert name in alter.error
    assert not admin.has_topic("misconfigured")


def test_an_unknown_topic_is_refused_with_the_name_that_was_meant(
    headrace: Cli, admin: Admin
) -> None:
    """Every command that takes a topic says so in one voice, and suggests the likely one."""
    admin.create_topic("page-clicks")
    commands = [
        ("topic", "describe", "page-click"),
        ("topic", "alter", "page-click", "-p", "9"),
        ("topic", "delete", "page-click", "--yes"),
        ("produce", "page-click"),
        ("consume", "page-click"),
        ("group", "reset", "some-group", "--topic", "page-click", "--to", "earliest"),
    ]
    try:
        answers = together(*(headrace.start(*command) for command in commands), status=2)
    finally:
        admin.delete_topic("page-clicks")
    for done in answers:
        assert_refusal(done)
        assert "there is no topic page-click" in done.error
        assert done.hint == "did you mean page-clicks?"


def test_an_unreachable_cluster_is_told_within_a_minute(calls_into_nowhere: Calls) -> None:
    """Where nobody listens, every command ends by itself with exit 1 and a next step."""
    for command, call in calls_into_nowhere.items():
        done, seconds = call.result()
        assert seconds < 60
        if command[0] == "doctor":
            (connection,) = [f for f in done.json["findings"] if f["check"] == "connection"]
            assert connection["ok"] is False
            assert "127.0.0.1:1" in connection["detail"]
            assert connection["hint"]
        else:
            assert_refusal(done)
            assert "no answer from the cluster" in done.error
            assert "headrace doctor" in done.hint


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic",),
        ("topic", "create"),
        ("topic", "create", "x", "-p", "many"),
        ("topic", "list", "-o", "xml"),
        ("topick",),
        ("--profile", "nowhere", "topic", "list"),
    ],
)
def test_bad_usage_is_exit_2(headrace: Cli, arguments: tuple[str, ...]) -> None:
    """A wrong word on the command line: `error:`, `hint:`, exit 2."""
    assert headrace.refused(2, *arguments).hint
