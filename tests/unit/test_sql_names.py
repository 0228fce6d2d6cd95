"""Names in a query: what they stand for, and what is said of one that stands for nothing."""

import pytest

from headrace.cli.main import run
from headrace.errors import BadInput, OperationFailed
from headrace.spark.sql.failures import explained, failed, what_was_said
from headrace.spark.sql.names import Name, find, quoted, rewritten


def name(text: str, start: int = 0, past: bool = False) -> Name:
    return Name(tuple(text.split(".")), start, start + len(text), past)


def never() -> list[str]:
    raise AssertionError("the cluster was asked, though every name is a table")


def test_a_table_comes_before_a_topic_and_needs_no_cluster():
    found = find([name("events")], ["events", "sessions"], never)
    assert [(each.kind, each.called) for each in found] == [("table", "events")]
    found = find([name("events"), name("clicks")], ["events"], lambda: ["events", "clicks"])
    assert [each.kind for each in found] == ["table", "topic"]


def test_parts_without_quotes_are_joined_by_dots():
    (found,) = find([name("shop.clicks")], [], lambda: ["shop", "clicks", "shop.clicks"])
    assert found.called == "shop.clicks"


def test_capitals_matter_only_where_they_must():
    (found,) = find([name("ORDERS")], [], lambda: ["Orders"])
    assert found.called == "Orders"
    (found,) = find([name("Orders")], [], lambda: ["Orders", "orders"])
    assert found.called == "Orders"
    with pytest.raises(BadInput, match="no table and no topic 'ORDERS'"):
        find([name("ORDERS")], [], lambda: ["Orders", "orders"])
    with pytest.raises(BadInput, match="differ only in capitals"):
        find([name("Orders"), name("orders", 9)], [], lambda: ["Orders", "orders"])


def test_an_unknown_name_is_told_what_there_is_the_closest_first():
    topics = ["audit", "ecommerce.events", "__consumer_offsets"]
    with pytest.raises(BadInput) as refused:
        find([name("ecomerce.event")], ["sessions"], lambda: topics)
    assert refused.value.hint.startswith("did you mean ecommerce.events? There is ecommerce.events")
    assert "sessions" in refused.value.hint
    assert "audit" in refused.value.hint
    assert "__consumer_offsets" not in refused.value.hint
    with pytest.raises(BadInput) as refused:
        find([name("x")], [f"t{number}" for number in range(30)], list)
    assert refused.value.hint.endswith("and 10 more")


def test_a_query_is_rewritten_where_names_stand_and_nowhere_else():
    text = "SELECT '😀 a.b', a.b FROM a.b JOIN c"
    at = text.index("FROM ") + 5
    names = {name("a.b", at): quoted("a.b"), name("c", len(text) - 1): quoted("c`d")}
    assert rewritten(text, names) == "SELECT '😀 a.b', a.b FROM `a.b` JOIN `c``d`"


def test_what_spark_says_becomes_one_line_with_a_next_step():
    refused = explained(
        ValueError("[UNRESOLVED_COLUMN.WITH_SUGGESTION] No `x`. SQLSTATE: 42703; line 1 pos 7;\n'P")
    )
    assert (str(refused), refused.exit_status) == (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] No `x`.",
        2,
    )
    assert "json:NAME::TYPE" in refused.hint
    broken = failed(ValueError("An error\n: awaitResult\nx: [DIVIDE_BY_ZERO] Zero.\n\tat y"))
    assert isinstance(broken, OperationFailed)
    assert (broken.message, broken.hint) == (
        "[DIVIDE_BY_ZERO] Zero.",
        "try_divide gives null instead",
    )
    assert what_was_said(ValueError("Sorting is not supported;\nplan")) == (
        "Sorting is not supported"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--follow", "-o", "json"), "--follow has no end"),
        (("--from", "42"), "--from 42 is an offset"),
        (("--from", "soon"), "'soon' is no position"),
        (("--follow", "--every", "soon"), "'soon' is no span of time"),
        (("--pipeline", "nope"), "there is no pipeline 'nope'"),
    ],
)
def test_wrong_options_are_refused_before_spark_starts(arguments, complaint, capfd):
    assert run(["sql", "SELECT 1", *arguments]) == 2
    assert complaint in capfd.readouterr().err


def test_a_pipeline_of_avro_values_is_refused(tmp_path, monkeypatch, capfd):
    (tmp_path / "avro_shop.py").write_text(
        "from dataclasses import replace\n"
        "from headrace.spark.pipelines import CLICKSTREAM as c\n"
        "from headrace.spark.pipelines.fields import value_as\n"
        "clicks = replace(c, source=replace(c.source, value=value_as(c.source.value, 'avro')))\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run(["sql", "SELECT 1", "--pipeline", "avro_shop:clicks"]) == 2
    assert "pipeline clickstream reads Avro values" in capfd.readouterr().err
