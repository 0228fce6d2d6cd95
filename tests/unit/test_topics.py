"""Topics are checked before the cluster is asked."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.topic import parse_settings
from headrace.clients.admin import Broker, Config, Partition, Topic
from headrace.errors import BadInput, TopicExists, TopicNotFound
from headrace.model import Earliest
from headrace.services.topics import (
    alter_topic,
    check_topic_name,
    create_topic,
    delete_topic,
    describe_topic,
    list_topics,
)


class Cluster:
    """Two brokers and the topics `clicks` (its second partition has no leader) and `__own`."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def brokers(self):
        return [Broker(1, "h", 1), Broker(2, "h", 2)]

    def topic_names(self):
        return ["__own", "clicks"]

    def has_topic(self, name):
        return name in self.topic_names() or ("create", name) in [c[:2] for c in self.calls]

    def topic(self, name):
        if not self.has_topic(name):
            raise TopicNotFound(f"there is no topic {name}")
        return Topic(name, (Partition(0, 1, (1, 2), (1, 2)), Partition(1, None, (1, 2), (2,))))

    def topics(self, names):
        return [self.topic(name) for name in names]

    def offsets(self, partitions, position):
        return dict.fromkeys(partitions, 5 if isinstance(position, Earliest) else 9)

    def configs(self, name):
        return [Config("a", "1", True), Config("b", "2", False)]

    def create_topic(self, *arguments):
        self.calls.append(("create", *arguments))

    def delete_topic(self, name):
        self.calls.append(("delete", name))

    def set_configs(self, *arguments):
        self.calls.append(("configs", *arguments))

    def add_partitions(self, *arguments):
        self.calls.append(("partitions", *arguments))


@pytest.fixture
def admin():
    return Cluster()


@given(name=st.text() | st.from_regex(r"[a-zA-Z0-9._-]{1,260}", fullmatch=True))
def test_a_name_is_accepted_exactly_if_kafka_takes_it(name):
    legal = (
        0 < len(name) <= 249
        and name not in (".", "..")
        and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    )
    if legal:
        assert check_topic_name(name) == name
    else:
        with pytest.raises(BadInput) as caught:
            check_topic_name(name)
        assert caught.value.facts == {"topic": name}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250, "a\n"])
def test_an_illegal_name_never_reaches_the_cluster(admin, name):
    with pytest.raises(BadInput):
        create_topic(admin, name)
    assert admin.calls == []


@pytest.mark.parametrize(("partitions", "replication"), [(0, None), (-1, 1), (1, 0), (1, 3)])
def test_impossible_counts_never_reach_the_cluster(admin, partitions, replication):
    with pytest.raises(BadInput):
        create_topic(admin, "new", partitions, replication)
    assert admin.calls == []


def test_a_topic_that_is_there_is_not_made_again(admin):
    with pytest.raises(TopicExists) as caught:
        create_topic(admin, "clicks")
    assert caught.value.facts == {"topic": "clicks"}
    assert admin.calls == []


def test_a_new_topic_is_made_and_described(admin):
    assert create_topic(admin, "new", 2, 2, {"a": "1"}).name == "new"
    assert admin.calls == [("create", "new", 2, 2, {"a": "1"})]


def test_a_partition_without_a_leader_is_described_without_offsets(admin):
    first, second = describe_topic(admin, "clicks").partitions
    assert (first.leader, first.earliest, first.latest) == (1, 5, 9)
    assert (second.leader, second.earliest, second.latest) == (None, None, None)


def test_a_description_has_the_fields_of_the_contract(admin):
    document = describe_topic(admin, "clicks").to_json()
    assert {"name", "partitions", "configs"} <= set(document)
    assert set(document["partitions"][0]) == {
        *("id", "leader", "replicas", "isr", "earliest", "latest")
    }
    assert document["configs"] == {"a": "1", "b": "2"}
    assert document["overrides"] == ("b",)


def test_kafkas_own_topics_are_listed_on_request(admin):
    assert [topic.name for topic in list_topics(admin)] == ["clicks"]
    both = list_topics(admin, internal=True)
    assert [(topic.name, topic.internal) for topic in both] == [("__own", True), ("clicks", False)]
    assert (both[1].replication, both[1].under_replicated) == (2, 1)


def test_partitions_are_never_taken_away(admin):
    with pytest.raises(BadInput, match="cannot be reduced to 1"):
        alter_topic(admin, "clicks", 1, {"a": "1"})
    assert admin.calls == []


def test_nothing_to_alter_is_bad_input(admin):
    with pytest.raises(BadInput, match="nothing to alter"):
        alter_topic(admin, "clicks", None, {})


def test_an_empty_value_takes_a_setting_back_to_its_default(admin):
    alter_topic(admin, "clicks", 5, {"a": "", "b": "7"})
    assert admin.calls == [
        ("configs", "clicks", {"a": None, "b": "7"}),
        ("partitions", "clicks", 5),
    ]


def test_deleting_an_unknown_topic_says_so(admin):
    with pytest.raises(TopicNotFound):
        delete_topic(admin, "nosuch")
    assert admin.calls == []
    delete_topic(admin, "clicks")
    assert admin.calls == [("delete", "clicks")]


# --- -c name=value ---


def test_settings_are_parted_at_the_first_equals_sign():
    assert parse_settings(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    assert parse_settings(None) == {}


@pytest.mark.parametrize("setting", ["a", "", "=", "=1"])
def test_a_setting_without_a_name_or_equals_sign_is_bad_input(setting):
    with pytest.raises(BadInput, match=re.escape(repr(setting))) as caught:
        parse_settings(["a=1", setting])
    assert "-c retention.ms=60000" in caught.value.hint
