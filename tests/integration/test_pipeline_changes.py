"""Pipelines whose definition, tables or checkpoint change between two runs."""

from pathlib import Path

import orjson
import pytest
from deltalake import DeltaTable

from headrace.errors import BadInput
from headrace.spark.pipelines import (
    Count,
    Derive,
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
from support.lake import table
from support.pipelines import Rig, simple

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_700_006_400_000  # a full hour


@pytest.fixture
def rig(kafka_cluster, make_topic, tmp_path, spark):
    return Rig(kafka_cluster, make_topic(1), tmp_path / "lake")


def orders(*fields: Field, **more) -> Pipeline:
    known = (Field("id"), Field("at", "time"), Field("created", "time"), Field("n", "long"))
    source = Topic("orders", Json(*known, *fields))
    return Pipeline("orders", source=source, rows=Rows("orders"), **more)


def send(rig, *documents, row=None):
    rig.send_raw([(orjson.dumps(document), row) for document in documents])


PER_HOUR = Totals("per_hour", by={}, measures={"orders": Count()}, windows=Windows("1 hour"))


def by_hour(rig):
    return {
        round((row["window_start"].timestamp() * 1000 - START_MS) / HOUR_MS): row["orders"]
        for row in table(rig.lake, "per_hour")
    }


@pytest.mark.long(15)
def test_another_time_makes_tables_that_go_by_time_anew(rig):
    derived = (PER_HOUR, Latest("last", key="id"))
    send(rig, {"id": "a", "at": START_MS, "created": START_MS + 5 * HOUR_MS})
    rig.run(orders(time="at", derived=derived))
    assert by_hour(rig) == {0: 1}
    send(rig, {"id": "a", "at": START_MS, "created": START_MS + 6 * HOUR_MS})
    rig.run(orders(time="created", derived=derived))
    assert by_hour(rig) == {5: 1, 6: 1}
    (last,) = table(rig.lake, "last")
    assert last["created"].timestamp() * 1000 == START_MS + 6 * HOUR_MS


@pytest.mark.long(20)
def test_a_late_row_is_late_by_the_time_that_counts_now(rig):
    totals = Totals("totals", by={"id": "id"}, measures={"orders": Count()}, late="1 hour")
    send(rig, {"id": "a", "at": START_MS + 9 * HOUR_MS, "created": START_MS})
    rig.run(orders(time="at", derived=(totals,)))
    send(rig, {"id": "a", "at": START_MS, "created": START_MS + HOUR_MS})
    rig.run(orders(time="created", derived=(totals,)))
    assert [row["orders"] for row in table(rig.lake, "totals")] == [2]


def test_a_new_field_a_new_step_and_tables_that_need_them_come_together(rig, tmp_path):
    names = tmp_path / "names.csv"
    names.write_text("country,name\nfr,France\n")
    send(rig, {"id": "a", "n": 1})
    rig.run(orders())
    send(rig, {"id": "b", "n": 2, "country": "fr"})
    pipeline = orders(
        Field("country"),
        steps=(Derive("twice", "n * 2"), Lookup(str(names), "country", ("name",))),
        derived=(
            Totals(
                "countries",
                by={"country": "country", "name": "name"},
                measures={"twice": Sum("twice", type="long")},
            ),
        ),
    )
    rig.run(pipeline)
    found = {tuple(row.values()) for row in table(rig.lake, "countries")}
    assert found == {(None, None, 0), ("fr", "France", 4)}


def test_a_column_that_is_not_kept_makes_no_table_of_nulls(rig):
    totals = Totals("totals", by={"n": "n"}, measures={"orders": Count()})
    send(rig, {"id": "a", "n": 1})
    rows = Rows("orders", columns=("id",))
    source = orders().source
    rig.run(Pipeline("orders", source=source, rows=rows))
    with pytest.raises(BadInput, match="totals cannot be made from orders"):
        rig.run(Pipeline("orders", source=source, rows=rows, derived=(totals,)))


def test_a_field_that_is_not_declared_any_more_is_rescued(rig):
    def pages(*fields):
        value = Json(Field("page"), *fields, drift="evolve")
        return Pipeline("clicks", source=Topic("clicks", value), rows=Rows("clicks"))

    send(rig, {"page": "a", "size": 7})
    rig.run(pages(Field("size", "long")))
    send(rig, {"page": "b", "size": 8, "colour": "red"})
    rig.run(pages())
    found = {row["page"]: row for row in table(rig.lake, "clicks")}
    assert (found["a"]["size"], found["b"]["size"], found["b"]["colour"]) == (7, None, "red")
    assert orjson.loads(found["b"]["rescued"]) == {"size": "8"}


@pytest.mark.parametrize("kind", ["long", "decimal(18,2)"])
@pytest.mark.long(20)
def test_a_sum_that_is_too_large_names_its_table_and_a_wider_type_mends_it(rig, kind):
    def totals(type):
        return Totals("sums", by={"id": "id"}, measures={"n": Sum("n", type=type)})

    most = 2**63 - 1 if kind == "long" else 9_000_000_000_000_000
    send(rig, {"id": "a", "n": most})
    rig.run(orders(derived=(totals(kind),)))
    send(rig, {"id": "a", "n": most})
    with pytest.raises(BadInput, match="table sums: a number is too large"):
        rig.run(orders(derived=(totals(kind),)))
    rig.run(orders(derived=(totals("decimal(38,0)"),)))
    assert [row["n"] for row in table(rig.lake, "sums")] == [2 * most]


@pytest.mark.long(20)
def test_what_is_the_same_does_not_depend_on_how_batches_are_cut(rig, tmp_path):
    """Of one id, each time is a row of its own, and each of those is there once."""
    times = [0, 5, 0, 70, 5, None, None]
    documents = [
        {"id": "x", "n": 1, **({} if t is None else {"at": START_MS + t * 60_000})} for t in times
    ]
    send(rig, *documents, row="order-7")
    for size in (1, 3, 100):
        rig.lake = tmp_path / f"lake{size}"
        done = rig.run(orders(time="at"), records_per_batch=size)
        assert (done.rows_out, done.duplicates) == (4, 3)


@pytest.mark.long(20)
def test_columns_may_have_the_names_of_others(rig):
    """Also of those that helped once."""
    value = Json(Field("_number", "long"), Field("at", "time"), Field("_window"), Field("_session"))
    pipeline = Pipeline(
        "clicks",
        source=Topic("clicks", value),
        time="at",
        rows=Rows("clicks"),
        derived=(
            Totals(
                "windows", by={"w": "_window"}, measures={"n": Count()}, windows=Windows("1 hour")
            ),
            Sessions("sessions", key="_session", gap="1 hour", measures={"n": Sum("_number")}),
        ),
    )
    click = {"_number": 5, "at": START_MS, "_window": "w", "_session": "s"}
    send(rig, click, click, row="twice")
    assert rig.run(pipeline).duplicates == 1
    (row,) = table(rig.lake, "clicks")
    assert (row["_number"], row["_window"], row["_session"]) == (5, "w", "s")
    (window,), (session,) = table(rig.lake, "windows"), table(rig.lake, "sessions")
    assert (window["w"], window["n"], session["_session"], session["n"]) == ("w", 1, "s", 5)


@pytest.mark.long(20)
def test_old_sessions_and_windows_are_not_read_again(rig):
    """What a batch cannot change stays unread: here it is gone, and nobody notices."""
    sessions = Sessions("sessions", key="id", gap="30 minutes", measures={"orders": Count()})
    pipeline = orders(time="at", derived=(sessions, PER_HOUR))
    send(rig, {"id": "a", "at": START_MS})
    rig.run(pipeline)
    for name in ("sessions", "per_hour"):
        (old,) = DeltaTable(str(rig.lake / name)).file_uris()
        Path(old).unlink()
    for minute in (0, 20):
        send(rig, {"id": "a", "at": START_MS + 3 * DAY_MS + minute * 60_000})
        rig.run(pipeline)
    for name in ("sessions", "per_hour"):
        made = DeltaTable(str(rig.lake / name))
        (old,) = [uri for uri in made.file_uris() if not Path(uri).exists()]
        made.repair()
        assert [row["orders"] for row in table(rig.lake, name)] == [2]


def test_a_damaged_checkpoint_is_named_and_tables_know_without_it(rig):
    send(rig, {"id": "a"})
    rig.run(orders())
    checkpoint = rig.lake / "_checkpoints/orders"
    for file in (checkpoint / "offsets").iterdir():
        file.write_text("")
    send(rig, {"id": "b"})
    with pytest.raises(BadInput, match=r"_checkpoints/orders/offsets/0 is damaged"):
        rig.run(orders())
    for path in sorted(checkpoint.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    rig.run(orders())
    assert sorted(row["id"] for row in table(rig.lake, "orders")) == ["a", "b"]


def test_a_long_reason_fits_into_its_topic(rig):
    """Thousands of fields that nobody declared: the reason is long, and its topic takes it."""
    many = {f"{number:040}": 1 for number in range(19_000)}
    rig.send_raw([(orjson.dumps({"page": "a"} | many), None)])
    rig.run(simple("freeze"))
    ((*_, reason),) = rig.dead("clicks")
    (dead,) = table(rig.lake, "dead_letters")
    assert reason.startswith("unknown fields: 0000")
    assert len(reason) == 1_000 < len(dead["reason"])
