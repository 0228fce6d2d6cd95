"""`sql`: queries over topics and tables give what Python counts, once and while records come."""

import base64
import json
import signal
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import orjson
import pytest

import headrace as hr
from headrace.cli.main import run
from headrace.clients import Connection
from headrace.errors import BadInput
from headrace.model import AtTime, Latest
from headrace.services.compaction import compact
from headrace.spark.pipelines import CLICKSTREAM, Csv, Field, Pipeline, Rows, Topic
from headrace.spark.sql.running import SqlOptions, ask, follow
from headrace.spark.sql.tables import topic_columns
from support.lake import some_events
from support.streaming import dying_threads
from support.waiting import eventually

SECONDS = 120


@pytest.fixture
def topic(make_topic):
    return make_topic(3)


@pytest.fixture
def connect(kafka_cluster):
    return lambda: Connection(kafka_cluster.bootstrap)


@pytest.fixture
def lake(spark, tmp_path):
    """A table of kinds, in two versions."""
    path = f"{tmp_path}/lake/kinds"
    spark.sql("SELECT 'a' AS kind, 'Alpha' AS title").write.format("delta").save(path)
    more = spark.sql("SELECT 'b' AS kind, 'Beta' AS title")
    more.write.format("delta").mode("append").save(path)
    return str(tmp_path / "lake")


@pytest.fixture
def sql(kafka_cluster, monkeypatch, capfd, spark):
    """The command, in this process; returns status, output and complaints."""
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", kafka_cluster.bootstrap)

    def call(*arguments):
        status = run(["sql", *arguments])
        told = capfd.readouterr()
        return status, told.out, told.err

    return call


def send(cluster, topic, numbers):
    """Numbers as JSON, a kind and a price each."""
    with hr.Producer(cluster.bootstrap) as producer:
        for n in numbers:
            value = orjson.dumps({"n": n, "kind": "ab"[n % 2], "price": n / 100})
            producer.send(topic, value, key=f"k{n % 5}", headers=[("number", str(n))])


def test_topics_and_tables_by_name_in_one_query(sql, kafka_cluster, topic, lake):
    """With a name of its own that is like a topic's, subqueries, and a table as it was."""
    send(kafka_cluster, topic, range(100))
    query = f"""
        WITH kinds AS (SELECT * FROM kinds)  -- the table, under its own name
        SELECT '😀' AS face, k.title, count(*) AS n, sum(e.json:price::decimal(12,2)) AS total
        FROM `{topic}` e JOIN kinds k ON e.json:kind::string = k.kind
        WHERE e.json:n::int IN (SELECT s.json:n::int FROM `{topic}` s WHERE s.key <> 'k0')
        GROUP BY ALL ORDER BY k.title
    """
    status, out, told = sql(query, "--lake", lake, "-o", "json")
    assert status == 0, told
    wanted = [n for n in range(100) if n % 5]
    assert json.loads(out) == [
        {
            "face": "😀",
            "title": title,
            "n": sum(n % 2 == odd for n in wanted),
            "total": str(sum(Decimal(n) / 100 for n in wanted if n % 2 == odd)),
        }
        for odd, title in enumerate(("Alpha", "Beta"))
    ]
    status, out, _ = sql("SELECT * FROM kinds VERSION AS OF 0", "--lake", lake, "-o", "ndjson")
    assert (status, json.loads(out)) == (0, {"kind": "a", "title": "Alpha"})


def test_a_table_shows_so_many_rows_and_says_how_many_more(sql, kafka_cluster, topic):
    send(kafka_cluster, topic, range(12))
    query = f"SELECT json:n::int AS n, headers[0].value AS number FROM `{topic}` ORDER BY n"
    status, out, told = sql(query, "--limit", "5")
    assert status == 0
    assert [line.split() for line in out.splitlines()[3:8]] == [[str(n)] * 2 for n in range(5)]
    assert "7 more rows" in told
    _, out, _ = sql(query, "-o", "ndjson")
    assert [json.loads(line)["n"] for line in out.splitlines()] == list(range(12))


def test_values_are_exact(sql, kafka_cluster, topic):
    value = b'{"id": 9007199254740993, "price": 0.10000000000000000001, "none": null}'
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        producer.send(topic, value, key=b"\xff", timestamp=1_570_000_000_123, partition=1)
        producer.send(topic, None, key="gone", partition=1)
    status, out, told = sql(
        f"""
        SELECT json, json:id::long AS id, timestamp, cast(key AS binary) AS bytes, offset, value,
            9223372036854775807 AS long, 1.10 AS decimal, double('NaN') AS nan, 0.5D AS double,
            named_struct('at', date'2020-01-02', 'ntz', timestamp_ntz'2020-01-02 03:04:05') AS day,
            map(1, x'00') AS map, array(1, NULL) AS list, interval '3' month AS months
        FROM `{topic}` ORDER BY offset
        """,
        *("-o", "json"),
    )
    assert status == 0, told
    first, second = json.loads(out, parse_float=Decimal)
    assert first == {
        "json": json.loads(value, parse_float=Decimal),
        "id": 9007199254740993,
        "timestamp": "2019-10-02T07:06:40.123000+00:00",
        "bytes": {"base64": base64.b64encode(b"\xff").decode()},
        "offset": 0,
        "value": value.decode(),
        "long": 2**63 - 1,
        "decimal": "1.10",
        "nan": "NaN",
        "double": Decimal("0.5"),
        "day": {"at": "2020-01-02", "ntz": "2020-01-02T03:04:05"},
        "map": {"1": {"base64": "AA=="}},
        "list": [1, None],
        "months": "INTERVAL '3' MONTH",
    }
    assert (second["value"], second["json"], second["offset"]) == (None, None, 1)


def test_fields_that_a_pipeline_declares_are_typed_columns(kafka_cluster, topic, connect, spark):
    events = some_events(50)
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        for event in events:
            producer.send(topic, event.to_json(), key="k", headers=[("headrace-row", event.row)])
        producer.send(topic, b"no JSON")
    pipeline = replace(CLICKSTREAM, source=replace(CLICKSTREAM.source, name=topic))
    text = f"SELECT headers[0].value, event_time, price, category, reason FROM `{topic}`"
    found = list(ask(SqlOptions(text, pipelines=(pipeline,)), connect).rows())
    good = [
        [e.row, e.time.isoformat(), f"{e.price:.2f}", (e.category or "none").split(".")[0], None]
        for e in events
    ]
    bad = [None, None, None, "none", "the value is no JSON object"]
    assert sorted(map(str, found)) == sorted(map(str, [*good, bad]))


def test_fields_of_csv_are_typed_columns_too(spark):
    schema = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
        "timestampType int, headers array<struct<key: string, value: binary>>"
    )
    places = ("clicks", 0, 0, datetime.now(UTC), 0, None)
    records = spark.createDataFrame([(b"k", b"7;x", *places), (None, b"?;y", *places)], schema)
    value = Csv(Field("id", "long"), Field("name"), separator=";")
    pipeline = Pipeline("p", Topic("clicks", value), Rows("rows"))
    found = topic_columns(records, pipeline).select("key", "value", "id", "name", "reason")
    good, bad = found.collect()
    assert tuple(good) == ("k", "7;x", 7, "x", None)
    assert (bad.id, bad.value) == (None, "?;y")
    assert "id" in bad.reason


def test_only_what_was_committed_up_to_now_is_read(kafka_cluster, topic, connect, spark):
    """Aborted records are not there, and an open transaction is not waited for."""
    send(kafka_cluster, topic, range(10))
    text = f"SELECT count(*), min(timestamp) FROM `{topic}`"
    before = datetime.now(UTC)
    with hr.Producer(
        kafka_cluster.bootstrap, profile="exactly-once", transactional_id=topic
    ) as producer:
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"{}", partition=0).result()
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, b"{}", partition=0)
            producer.flush()
            ((count, _),) = ask(SqlOptions(text), connect).rows()
            assert count == 10
    ((count, _),) = ask(SqlOptions(text), connect).rows()
    assert count == 11
    later = AtTime(int(before.timestamp() * 1000))
    ((count, _),) = ask(SqlOptions(text, start=later), connect).rows()
    assert count == 1


REFUSED = (
    ("SELEC 1", "[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'"),
    ("SELECT nope FROM {topic}", "`nope` cannot be resolved"),
    ("SELECT * FROM nope", "there is no table and no topic 'nope'"),
    ("SELECT * FROM delta.`/tmp`", "there is no table and no topic 'delta./tmp'"),
    ("INSERT INTO kinds SELECT 'c', 'Gamma'", "only reads"),
    ("FROM kinds INSERT INTO kinds SELECT *", "only reads"),
    ("WITH t AS (SELECT 1) INSERT INTO kinds SELECT * FROM t", "only reads"),
    ("CREATE TABLE x AS SELECT 1", "only reads"),
    ("DROP TABLE kinds", "only reads"),
    ("DELETE FROM kinds", "only reads"),
    ("VACUUM kinds", "only reads"),
    ("RESTORE TABLE kinds TO VERSION AS OF 0", "only reads"),
    ("SET spark.sql.ansi.enabled=false", "only reads"),
    ("SELECT 1; DROP TABLE kinds", "[PARSE_SYNTAX_ERROR]"),
    ("SELECT TRANSFORM(kind) USING 'cat' AS x FROM kinds", "TRANSFORM runs a program"),
    ("SELECT * FROM IDENTIFIER('ki' || 'nds')", "a name is computed"),
    ("SELECT * FROM {topic} VERSION AS OF 1", "has no versions"),
    ("SELECT 1 AS x, 2 AS x", "two columns are called 'x'"),
    (" ; ", "the query is empty"),
    ("SELECT key FROM {topic} ORDER BY key --follow", "Sorting is not supported"),
    ("SELECT 1 --follow", "there is nothing to follow"),
)


def test_what_is_no_query_or_wrong_is_refused(sql, topic, lake):
    """Exit 2, one line and a next step; nothing on stdout, and nothing is changed."""
    for query, complaint in REFUSED:
        text = query.removesuffix(" --follow").format(topic=f"`{topic}`")
        follow = ["--follow"] if query.endswith("--follow") else []
        status, out, told = sql(text, "--lake", lake, "-o", "ndjson", *follow)
        assert (status, out) == (2, ""), (query, told)
        *_, error, hint = told.splitlines()
        assert error.startswith("error: ")
        assert complaint in error
        assert hint.startswith("hint: ")
        assert "Traceback" not in told
    _, out, _ = sql("SELECT kind FROM kinds ORDER BY kind", "--lake", lake, "-o", "json")
    assert json.loads(out) == [{"kind": "a"}, {"kind": "b"}]


def test_a_cluster_that_needs_settings_and_a_log_without_a_table_are_refused(
    topic, lake, kafka_cluster, connect, tmp_path
):
    secured = Connection(kafka_cluster.bootstrap, settings={"security.protocol": "SASL_SSL"})
    with pytest.raises(BadInput, match="does not know librdkafka's settings"):
        ask(SqlOptions(f"SELECT * FROM `{topic}`"), lambda: secured)
    (tmp_path / "lake/empty/_delta_log").mkdir(parents=True)
    with pytest.raises(BadInput, match="empty"):
        ask(SqlOptions("SELECT * FROM empty", lake=lake), connect)


def test_a_value_that_does_not_fit_fails_the_query_in_one_line(sql, kafka_cluster, topic):
    send(kafka_cluster, topic, range(3))
    status, out, told = sql(f"SELECT cast(value AS int) FROM `{topic}`", "-o", "json")
    assert (status, out) == (1, "")
    *_, error, hint = told.splitlines()
    assert error.startswith("error: [CAST_INVALID_INPUT] The value '{")
    assert "try_cast" in hint


# --- on and on ---


@contextmanager
def following(options, connect, **how):
    """A query that is followed on another thread; gives its updates as they come."""
    updates, failures, stop = [], [], threading.Event()

    def work():
        try:
            follow(options, connect, updates.append, stop=stop, **how)
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield updates
    finally:
        stop.set()
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert failures == []


def test_a_followed_sum_is_shown_whole_and_its_changes_line_by_line(
    kafka_cluster, topic, connect, spark, monkeypatch, tmp_path
):
    """The best two by count: whole after each batch, or only what changed. No checkpoint stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = SqlOptions(
        f"SELECT key, count(*) AS n FROM `{topic}` GROUP BY key ORDER BY n DESC, key LIMIT 2",
        every=0.1,
    )

    def whole():
        return bool(shown) and shown[-1].rows

    send(kafka_cluster, topic, range(10))
    with following(options, connect) as shown:
        eventually(lambda: whole() == [["k0", 2], ["k1", 2]], "the first result", SECONDS)
        send(kafka_cluster, topic, [4, 4])
        eventually(lambda: whole() == [["k4", 4], ["k0", 2]], "it changes", SECONDS)
        assert all(update.whole for update in shown)
    with following(options, connect, whole=False) as shown:
        eventually(lambda: bool(shown), "the first result", SECONDS)
        send(kafka_cluster, topic, [0])
        changed = [["k4", 4], ["k0", 2], ["k0", 3]]
        eventually(
            lambda: [row for u in shown for row in u.rows] == changed, "what changed", SECONDS
        )
    assert list(tmp_path.glob("headrace-sql-*")) == []


def test_a_query_that_is_stopped_while_it_works_ends_in_order(kafka_cluster, topic, connect, spark):
    send(kafka_cluster, topic, range(3))
    asleep = f"SELECT java_method('java.lang.Thread', 'sleep', 600000L) FROM `{topic}`"
    with dying_threads(spark) as died:
        with following(SqlOptions(asleep, every=0.1), connect) as shown:
            eventually(spark.sparkContext.statusTracker().getActiveJobsIds, "it works", SECONDS)
        assert (died, shown) == ([], [])


def test_new_rows_of_a_stream_joined_with_a_table_come_once(
    kafka_cluster, topic, connect, spark, lake
):
    """From now on only; and a lake's own table is followed, though it is compacted meanwhile."""
    send(kafka_cluster, topic, range(10))
    text = f"SELECT json:n::int AS n, title FROM `{topic}` JOIN kinds ON json:kind::string = kind"
    options = SqlOptions(text, lake=lake, start=Latest(), every=0.1)
    with following(options, connect) as shown:
        sent = 10

        def send_until_seen():
            nonlocal sent
            send(kafka_cluster, topic, [sent])
            sent += 1
            return shown

        eventually(send_until_seen, "a first row", SECONDS, every=1)
        first = min(row[0] for row in shown[0].rows)  # partitions come in any order
        wanted = {(n, ("Alpha", "Beta")[n % 2]) for n in range(first, sent)}
        rows = lambda: [tuple(row) for update in shown for row in update.rows]  # noqa: E731
        eventually(lambda: len(rows()) >= len(wanted), "all rows", SECONDS)
        assert Counter(rows()) == Counter(wanted)
        assert not any(update.whole for update in shown)
    with following(SqlOptions("SELECT title FROM kinds", lake=lake, every=0.1), connect) as shown:
        eventually(lambda: len(rows()) == 2, "the table as it is", SECONDS)
        assert compact(Path(lake) / "kinds")
        more = spark.sql("SELECT 'c' AS kind, 'Gamma' AS title")
        more.write.format("delta").mode("append").save(f"{lake}/kinds")
        eventually(lambda: len(rows()) == 3, "the new row", SECONDS)
        assert sorted(rows()) == [("Alpha",), ("Beta",), ("Gamma",)]


@pytest.mark.long(30)
def test_the_command_follows_until_it_is_told_to_end(headrace, kafka_cluster, topic, tmp_path):
    """Lines of changed rows end at what Python counts; SIGINT is exit 0, and leaves nothing."""
    mine = headrace.with_variables(TMPDIR=str(tmp_path))
    query = f"SELECT json:kind::string AS kind, count(*) AS n FROM `{topic}` GROUP BY 1"
    send(kafka_cluster, topic, range(50))
    seen = {}
    with mine.start("sql", query, "--follow", "-o", "ndjson") as running:

        def read_until(wanted):
            while seen != wanted:
                line = running.line(SECONDS)
                seen[line["kind"]] = line["n"]

        read_until({"a": 25, "b": 25})
        send(kafka_cluster, topic, range(7))
        read_until({"a": 29, "b": 28})
        running.process.send_signal(signal.SIGINT)
        done = running.finish(seconds=SECONDS)
    assert done.stdout == ""
    assert "batch 0: 50 records" in done.stderr
    assert list(tmp_path.glob("headrace-sql-*")) == []
