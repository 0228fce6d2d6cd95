"""Pipelines as data: what is wrong with one is said when it is made, without Spark."""

import dataclasses

import pytest

from headrace.errors import BadInput, ConfigError
from headrace.services.pipelines import find_pipeline
from headrace.spark.pipelines import (
    CLICKSTREAM,
    Count,
    Derive,
    Expect,
    Field,
    Json,
    Latest,
    Lookup,
    Pipeline,
    Rows,
    Sessions,
    Sum,
    Topic,
    Totals,
    Windows,
)
from headrace.spark.pipelines.definition import seconds

TOPIC = Topic("clicks", Json(Field("page"), Field("at", "time"), Field("price", "decimal(8,2)")))


def pipeline(**changes):
    return Pipeline(**({"name": "clicks", "source": TOPIC, "rows": Rows("rows")} | changes))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Field("page", "text"), "field 'page' has type 'text'"),
        (lambda: Field("a page"), "a field is named 'a page'"),
        (lambda: Field("row_id"), "'row_id', as one of Headrace's own"),
        (lambda: Json(), "a value without fields"),
        (lambda: Json(Field("a"), Field("a", name="b")), "two fields called 'a'"),
        (lambda: Json(Field("a"), drift="ignore"), "drift is 'ignore'"),
        (lambda: Expect("a", "b > 0", "ignore"), "expectation 'a' has action 'ignore'"),
        (lambda: Derive("a b", "1"), "a derived column is named 'a b'"),
        (lambda: Lookup("x.csv", "id", ("name",), refresh="often"), "'often' is no span"),
        (lambda: Windows("1 minute", "5 minutes"), "leave gaps"),
        (lambda: Totals("t", by={}, measures={}), "totals 't' are by nothing"),
        (lambda: Totals("t", {"page": "page"}, {"a b": Count()}), "measure of t is named 'a b'"),
        (
            lambda: Totals("t", {"page": "page"}, {"s": Sum("price", type="double")}),
            "measure 's' of t is a sum of type 'double'",
        ),
        (lambda: Totals("t", {"page": "page"}, {}, late="1 week"), "'1 week' is no span"),
        (lambda: Sessions("s", key="page", gap="0 minutes"), "'0 minutes' is no span"),
        (lambda: pipeline(name="my clicks"), "a pipeline is named 'my clicks'"),
        (lambda: pipeline(time="when"), "time: there is no column 'when'"),
        (lambda: pipeline(rows=Rows("rows", ("nope",))), "table rows: there is no column 'nope'"),
        (
            lambda: pipeline(time="at", derived=(Latest("l", key="nope"),)),
            "table l: there is no column 'nope'",
        ),
        (lambda: pipeline(derived=(Latest("l", key="page"),)), "table 'l' goes by time"),
        (
            lambda: pipeline(derived=(Totals("t", {"p": "page"}, {}, late="1 hour"),)),
            "table 't' goes by time",
        ),
        (
            lambda: pipeline(derived=(Totals("rows", {"p": "page"}, {}),)),
            "two tables called 'rows'",
        ),
        (
            lambda: pipeline(derived=(Totals("dead_letters", {"p": "page"}, {}),)),
            "two tables called 'dead_letters'",
        ),
        (lambda: pipeline(steps=(Derive("page", "1"),)), "two columns called 'page'"),
        (
            lambda: pipeline(steps=(Lookup("x.csv", "id", ("name",)),)),
            "lookup x.csv: there is no column 'id'",
        ),
        (
            lambda: pipeline(expectations=(Expect("a", "1"), Expect("a", "2"))),
            "two expectations called 'a'",
        ),
    ],
)
def test_a_wrong_definition_is_refused_with_what_and_where(make, complaint):
    with pytest.raises(ConfigError) as caught:
        make()
    assert complaint in caught.value.message
    assert caught.value.hint


def test_a_definition_cannot_be_changed_and_a_copy_is_checked():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CLICKSTREAM.name = "other"
    with pytest.raises(ConfigError):
        dataclasses.replace(CLICKSTREAM, time="nope")


def test_columns_are_fields_steps_and_our_own():
    steps = (Derive("day", "date(at)"), Lookup("x.csv", "page", ("title",)))
    assert pipeline(steps=steps).columns[:5] == ("page", "at", "price", "day", "title")
    assert "kafka_offset" in pipeline().columns


def test_spans():
    assert [seconds(span) for span in ("1 second", "2 minutes", "1 hour", "3 days")] == [
        *(1, 120, 3600, 259_200)
    ]


def test_pipelines_are_found_by_name_or_in_a_module(tmp_path, monkeypatch):
    assert find_pipeline("clickstream") is CLICKSTREAM
    with pytest.raises(BadInput, match="there is no pipeline 'nope'") as caught:
        find_pipeline("nope")
    assert "clickstream" in caught.value.hint
    (tmp_path / "my_pipes.py").write_text(
        "from headrace.spark.pipelines import Field, Json, Pipeline, Rows, Topic\n"
        "clicks = Pipeline('clicks', Topic('clicks', Json(Field('page'))), Rows('rows'))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_pipeline("my_pipes:clicks").name == "clicks"
    with pytest.raises(BadInput, match="my_pipes: has no nope") as caught:
        find_pipeline("my_pipes:nope")
    assert caught.value.hint == "there is my_pipes:clicks"
