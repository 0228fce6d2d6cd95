"""Pipelines to a topic as data, and sources of several topics: what is wrong is said at once."""

import dataclasses

import pytest

from headrace.errors import BadInput, ConfigError
from headrace.services.pipelines import find_pipeline, find_streamed
from headrace.spark.pipelines import (
    FACTORY,
    Avro,
    Derive,
    Expect,
    Field,
    Forward,
    Json,
    Lookup,
    Topic,
)
from headrace.spark.pipelines.accounts import Standing
from headrace.spark.pipelines.runner import StreamOptions, stream

ALERTS = Topic("alerts", Json(Field("stage", "long"), Field("level"), Field("at", "time")))


def forward(**changes):
    return Forward(**({"name": "alarms", "source": ALERTS, "to": "alarms"} | changes))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: forward(name="my alarms"), "a pipeline is named 'my alarms'"),
        (lambda: forward(to="alerts"), "goes from topic alerts to itself"),
        (lambda: forward(to="my alarms"), "goes to topic 'my alarms'"),
        (lambda: forward(value=("nope",)), "value: there is no column 'nope'"),
        (lambda: forward(value=("stage", "stage")), "names a column twice"),
        (lambda: forward(steps=(Derive("Stage", "1"),)), "two columns called 'stage'"),
        (lambda: forward(steps=(Lookup("x.csv", "id", ("a",)),)), "there is no column 'id'"),
        (lambda: forward(expectations=(Expect("a", "1"),) * 2), "two expectations called 'a'"),
        (lambda: forward(expectations=(Expect("a", "1", "fail"),)), "'a' is to fail"),
        (lambda: forward(source=Topic("a", Avro(Field("b")))), "has Avro values"),
        (lambda: forward(source=Topic("a", Json(Field("b"), drift="evolve"))), "no columns to add"),
        (lambda: Topic("a", ALERTS.value, also=("b", "a")), "two topics called 'a'"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_made(make, complaint):
    with pytest.raises(ConfigError, match=complaint):
        make()


def test_all_that_was_declared_is_sent_and_what_nobody_declared_goes_with_it():
    assert forward(steps=(Derive("twice", "stage * 2"),)).columns_sent == (
        *("stage", "level", "at", "twice"),
        "rescued",
    )
    frozen = Topic("alerts", Json(Field("stage"), drift="freeze"))
    assert forward(source=frozen).columns_sent == ("stage",)
    assert forward(value=("level", "kafka_time")).columns_sent == ("level", "kafka_time")


def test_real_time_mode_is_refused_for_tables_and_one_topic_for_three():
    tables_only = dataclasses.replace(FACTORY, realtime=None)
    with pytest.raises(BadInput, match="writes tables, which real-time mode cannot"):
        stream(StreamOptions(tables_only, "lake", realtime=True), None)
    with pytest.raises(BadInput, match="one topic cannot stand in"):
        stream(StreamOptions(FACTORY, "lake", topic="other"), None)


def test_a_forward_is_found_by_name_but_is_no_pipeline_to_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "found_forward.py").write_text(
        "from headrace.spark.pipelines import Field, Forward, Json, Topic\n"
        "alarms = Forward('alarms', Topic('alerts', Json(Field('a'))), to='alarms')\n"
    )
    assert find_streamed("found_forward:alarms").to == "alarms"
    assert find_streamed("factory") is FACTORY
    with pytest.raises(BadInput, match="pipeline alarms goes to topic alarms, not to tables"):
        find_pipeline("found_forward:alarms")


def test_commits_of_old_with_one_topic_id_are_read():
    old = Standing(ranges={"clicks": {"0": (0, 5)}}).to_json() | {"topic_id": "abc"}
    del old["topic_ids"]
    assert Standing.from_json(old).topic_ids == {"clicks": "abc"}
    new = Standing(topic_ids={"a": "1", "b": "2"})
    assert Standing.from_json(new.to_json()) == new
