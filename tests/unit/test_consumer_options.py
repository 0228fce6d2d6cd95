"""Everything that can be known of a consumer when it is declared is checked then, and named."""

import os
from functools import partial
from typing import Any

import pytest

from headrace.config.consumer_settings import PROFILES, consumer_settings
from headrace.errors import BadInput, ConfigError, DecodeFailed
from headrace.model import AtOffset, AtTime, Earliest, Latest, Record, TopicPartition
from headrace.parallel import App, Auto, Batch, GapSafe, PerBatch, PerRecord, RebalanceListener
from headrace.parallel.options import MOST_WORKERS, check_options
from headrace.serde import Bytes, Json, Text
from headrace.serde.base import Field


def handle(value: bytes) -> None:
    """A plain handler that processes can import."""


async def handle_async(value: bytes) -> None:
    """An async one."""


def options(handler=handle, topics="clicks", **given):
    return check_options(handler, topics, **({"group": "scoring"} | given))


# --- what is refused ---


@pytest.mark.parametrize(
    ("handler", "given", "named"),
    [
        (handle, {"executor": "async"}, ("executor='async'", "a plain function")),
        (handle_async, {"executor": "thread"}, ("executor='thread'", "an async function")),
        (handle_async, {"executor": "process"}, ("executor='process'", "an async function")),
        (handle, {"executor": "fork"}, ("executor='fork'", "unknown")),
        (handle, {"concurrency": 0}, ("concurrency=0", "out of range")),
        (handle, {"concurrency": MOST_WORKERS + 1}, ("concurrency=10001", "out of range")),
        (handle, {"order": "time"}, ("order='time'", "unknown")),
        (
            handle,
            {"order": "partition", "batch": Batch(same_key=True)},
            ("order='partition'", "same_key=True"),
        ),
        (handle, {"offsets": "auto"}, ("offsets='auto'", "on_error='stop'")),
        (handle, {"offsets": Auto(), "on_error": lambda *_: "stop"}, ("auto", "on_error=")),
        (handle, {"offsets": "sometimes"}, ("offset strategy", "'sometimes'")),
        (handle, {"on_error": "retry"}, ("on_error='retry'", "unknown")),
        (handle, {"on_error": None}, ("on_error=None", "unknown")),
        (handle, {"group": ""}, ("group is empty",)),
        (handle, {"topics": ""}, ("no topic",)),
        (handle, {"topics": []}, ("no topic",)),
        (handle, {"topics": ["clicks", ""]}, ("no topic",)),
        (handle, {"topics": "^clicks-(["}, ("'^clicks-(['", "pattern")),
        (handle, {"rate": 0}, ("rate=0", "positive")),
        (handle, {"buffer_records": 0}, ("buffer_records=0", "positive")),
        (handle, {"buffer_bytes": -1}, ("buffer_bytes=-1", "positive")),
        (handle, {"drain": 0}, ("drain=0", "positive")),
        (handle, {"stall_after": -1}, ("stall_after=-1", "positive")),
        (handle, {"assignment": max, "partitions": [0]}, ("assignment", "partitions")),
        (handle, {"partitions": [0], "instance_id": "i-1"}, ("instance_id='i-1'",)),
        (handle, {"partitions": [0], "topics": "^clicks"}, ("pattern", "assigned")),
        (handle, {"profile": "fast"}, ("consumer profile", "'fast'")),
        (handle, {"assignor": "sticky"}, ("assignor", "'sticky'")),
    ],
)
def test_a_contradiction_is_refused_and_named_with_a_way_out(handler, given, named):
    with pytest.raises(ConfigError) as caught:
        options(handler, **given)
    assert all(word in caught.value.message for word in named), caught.value.message
    assert caught.value.hint


def test_a_refusal_names_the_consumer():
    for given, name in (({}, "handle"), ({"name": "scores"}, "scores")):
        with pytest.raises(ConfigError, match=f"consumer {name}: "):
            options(concurrency=0, **given)


def test_processes_cannot_have_a_handler_that_they_cannot_import():
    def local(value):
        pass

    for handler in (local, lambda value: None, partial(handle)):
        with pytest.raises(ConfigError, match="executor='process' cannot import") as caught:
            options(handler, executor="process")
        assert "top level" in caught.value.hint
    assert options(handle, executor="process").executor == "process"


def no_parameters():
    pass


def three_parameters(value, record, more):
    pass


def one_by_name_only(value, *, more):
    pass


def a_generator(value):
    yield value


async def an_async_generator(value):
    yield value


@pytest.mark.parametrize(
    ("handler", "named"),
    [
        (no_parameters, "takes 0 arguments"),
        (three_parameters, "takes 3 arguments"),
        (one_by_name_only, "more"),
        ("text", "no function"),
        (a_generator, "is a generator"),
        (an_async_generator, "is a generator"),
    ],
)
def test_a_handler_that_cannot_be_called_with_a_value_is_refused(handler, named):
    with pytest.raises(ConfigError, match=named) as caught:
        options(handler)
    assert caught.value.hint


def test_the_hint_for_a_batch_handler_speaks_of_batches():
    with pytest.raises(ConfigError) as caught:
        options(no_parameters, batch=Batch())
    assert "(values) or (values, records)" in caught.value.hint


@pytest.mark.parametrize("start", ["tomorrow", "", "-1"])
def test_a_start_that_is_no_position_is_refused(start):
    with pytest.raises(BadInput, match="no position"):
        options(start=start)


# --- settings ---


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        ("bootstrap.servers", "the connection"),
        ("group.id", "group="),
        ("group.instance.id", "instance_id="),
        ("group.protocol", "assignor="),
        ("partition.assignment.strategy", "assignor="),
        ("auto.offset.reset", "start="),
        ("enable.auto.commit", "offsets="),
        ("enable.auto.offset.store", "offsets="),
        ("auto.commit.interval.ms", "offsets="),
        ("enable.partition.eof", "the engine needs it"),
    ],
)
def test_a_setting_that_the_engine_answers_for_is_refused_with_where_it_is_said(setting, instead):
    with pytest.raises(ConfigError, match=f"{setting}=7") as caught:
        options(settings={setting: 7})
    assert instead in caught.value.hint
    assert caught.value.facts["setting"] == setting


@pytest.mark.parametrize("setting", ["session.timeout.ms", "heartbeat.interval.ms"])
def test_with_the_servers_protocol_the_broker_decides_about_sessions(setting):
    with pytest.raises(ConfigError) as caught:
        options(assignor="server", settings={setting: 6000})
    assert f"{setting}=6000" in caught.value.message
    assert 'assignor="server"' in caught.value.message
    assert options(settings={setting: 6000}).settings[setting] == 6000


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_in_every_profile_the_engine_commits_and_decides_where_to_begin(profile):
    settings = options(profile=profile).settings
    assert settings["enable.auto.commit"] is False
    assert settings["enable.auto.offset.store"] is False
    assert settings["auto.offset.reset"] == "error"
    assert settings["group.id"] == "scoring"


def test_profiles_differ_in_what_is_fetched_ahead():
    ahead = {name: PROFILES[name]["queued.max.messages.kbytes"] for name in PROFILES}
    assert ahead["small"] < ahead["latency"] < ahead["balanced"] < ahead["throughput"]


def test_what_the_user_gives_stands_over_the_profile():
    settings = options(profile="throughput", settings={"fetch.min.bytes": 7}).settings
    assert (settings["fetch.min.bytes"], settings["fetch.wait.max.ms"]) == (7, 50)
    assert PROFILES["throughput"]["fetch.min.bytes"] == 65_536


def test_the_assignor_becomes_a_strategy_or_the_servers_protocol():
    for assignor in ("cooperative-sticky", "range", "roundrobin"):
        settings = options(assignor=assignor).settings
        assert settings["partition.assignment.strategy"] == assignor
        assert "group.protocol" not in settings
    settings = options(assignor="server").settings
    assert settings["group.protocol"] == "consumer"
    assert "partition.assignment.strategy" not in settings


def test_a_static_member_has_its_instance_id():
    assert options(instance_id="i-1").settings["group.instance.id"] == "i-1"
    assert "group.instance.id" not in options().settings


def test_settings_are_made_anew_for_each_consumer():
    first = consumer_settings("balanced", {}, group="a")
    first["fetch.min.bytes"] = 99
    assert consumer_settings("balanced", {}, group="b")["fetch.min.bytes"] == 1


# --- defaults ---


def test_what_is_not_said_has_a_default():
    made = options()
    assert (made.name, made.topics, made.group) == ("handle", ("clicks",), "scoring")
    assert (made.order, made.executor, made.concurrency) == ("key", "thread", 16)
    assert (made.offsets, made.start, made.on_error) == (GapSafe(1.0), Earliest(), "stop")
    assert (made.batch, made.rate, made.assignment, made.partitions) == (None,) * 4
    assert (made.buffer_records, made.buffer_bytes) == (50_000, 64 * 1024 * 1024)
    assert (made.drain, made.stall_after) == (30.0, 60.0)
    assert made.listener == RebalanceListener()
    assert made.settings["partition.assignment.strategy"] == "cooperative-sticky"


def test_how_many_workers_there_are_depends_on_the_executor():
    assert options(handle_async).executor == "async"
    assert options(handle_async).concurrency == 100
    assert options(handle, executor="process").concurrency == os.cpu_count()
    for wanted in (1, MOST_WORKERS):
        assert options(concurrency=wanted).concurrency == wanted


def test_an_object_with_an_async_call_is_async():
    class Handler:
        async def __call__(self, value):
            pass

    assert options(Handler(), name="object").executor == "async"


@pytest.mark.parametrize(
    ("start", "position"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("none", None),
        ("42", AtOffset(42)),
        ("@1570000000000", AtTime(1_570_000_000_000)),
        ("2019-10-02T07:06:40Z", AtTime(1_570_000_000_000)),
        (AtOffset(7), AtOffset(7)),
    ],
)
def test_a_start_is_a_word_an_offset_a_time_or_a_position(start, position):
    assert options(start=start).start == position


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ("gap-safe", GapSafe()),
        ("per-record", PerRecord()),
        ("per-batch", PerBatch()),
        (GapSafe(0.2), GapSafe(0.2)),
        (PerBatch(7, sync=False), PerBatch(7, sync=False)),
    ],
)
def test_a_strategy_is_given_by_name_or_as_it_is(given, strategy):
    assert options(offsets=given).offsets == strategy


def test_auto_goes_with_skip():
    assert options(offsets="auto", on_error="skip").offsets == Auto(5.0)


def test_several_topics_share_the_partitions_to_be_read():
    made = options(topics=["a", "b"], partitions=[0, 2])
    assert made.topics == ("a", "b")
    assert made.partitions == tuple(TopicPartition(topic, n) for topic in "ab" for n in (0, 2))


def test_a_pattern_is_a_topic_too():
    assert options(topics=r"^clicks-\d+").topics == (r"^clicks-\d+",)


# --- handlers ---


def takes_bytes(value: bytes): ...


def takes_perhaps_bytes(value: bytes | None): ...


def takes_anything(value: Any): ...


def takes_text(value: str): ...


def takes_perhaps_text(value: str | None): ...


def takes_unknown(value: "OnlyATypeCheckerKnows"): ...  # noqa: F821


def says_nothing(value): ...


@pytest.mark.parametrize(
    ("handler", "serde"),
    [
        (takes_bytes, Bytes),
        (takes_perhaps_bytes, Bytes),
        (takes_anything, Bytes),
        (says_nothing, Bytes),
        (takes_unknown, Bytes),
        (takes_text, Text),
        (takes_perhaps_text, Text),
    ],
)
def test_the_first_parameters_type_decides_about_bytes_and_text(handler, serde):
    assert type(options(handler).value) is serde


def takes_object(value: dict[str, int], record: Record): ...


def takes_many(values: list[str]): ...


def takes_many_of_anything(values): ...


def test_any_other_type_is_json_of_that_type():
    made = options(takes_object)
    assert type(made.value) is Json
    assert made.signature.value_type == dict[str, int]
    assert made.value.decode(b'{"a": 1}', Field("clicks")) == {"a": 1}
    with pytest.raises(DecodeFailed):
        made.value.decode(b'{"a": "no number"}', Field("clicks"))


def test_of_a_batch_the_items_type_decides():
    assert type(options(takes_many, batch=Batch()).value) is Text
    assert type(options(takes_many_of_anything, batch=Batch()).value) is Bytes


def test_a_serde_that_is_given_stands_over_the_type():
    serde = Text()
    assert options(takes_object, value=serde).value is serde


def takes_a_default(value, limit=10): ...


def test_a_second_parameter_without_a_default_is_the_record():
    assert options(takes_object).signature.wants_record
    assert not options(handle).signature.wants_record
    assert not options(takes_a_default).signature.wants_record


# --- the app ---


def test_an_app_keeps_what_is_declared_and_gives_the_function_back():
    app = App("localhost:1")
    given = {
        "group": "g",
        "value": Text(),
        "order": "none",
        "concurrency": 3,
        "batch": Batch(5, 0.1),
        "offsets": "per-batch",
        "start": "latest",
        "on_error": "skip",
        "rate": 7,
        "buffer_records": 8,
        "buffer_bytes": 9,
        "drain": 10,
        "stall_after": 11,
        "profile": "small",
        "assignor": "range",
        "instance_id": "i-1",
        "listener": RebalanceListener(assigned=print),
        "settings": {"client.id": "me"},
        "name": "scores",
    }
    assert app.consumer(["a", "b"], **given)(takes_many) is takes_many
    (made,) = app.consumers
    assert made == options(takes_many, ["a", "b"], **given)
    assert made.settings["client.id"] == "me"


def test_an_app_passes_on_how_partitions_are_chosen():
    app = App("localhost:1")

    def choose(instance, instances, partitions):
        return partitions[instance::instances]

    app.consumer("a", group="g", partitions=[3], name="first")(handle)
    app.consumer("a", group="g", assignment=choose, executor="thread", value=Text())(handle)
    first, second = app.consumers
    assert first.partitions == (TopicPartition("a", 3),)
    assert (second.assignment, type(second.value)) == (choose, Text)


def test_two_consumers_of_one_name_are_refused():
    app = App("localhost:1")
    app.consumer("a", group="g")(handle)
    with pytest.raises(ConfigError, match="two consumers named handle") as caught:
        app.consumer("b", group="g")(handle)
    assert "name=" in caught.value.hint
    app.consumer("b", group="g", name="other")(handle)
    assert [consumer.name for consumer in app.consumers] == ["handle", "other"]


def test_what_is_refused_is_not_declared():
    app = App("localhost:1")
    with pytest.raises(ConfigError):
        app.consumer("a", group="")(handle)
    assert app.consumers == []


def test_an_app_without_consumers_does_not_start():
    with pytest.raises(BadInput, match="no consumers"):
        App("localhost:1").start()
