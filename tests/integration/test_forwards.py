"""From topic to topic: every good record once, every bad one a dead letter, in real time too."""

import re
import signal
import threading
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

import headrace as hr
from headrace.clients import Connection
from headrace.errors import BadInput
from headrace.spark.pipelines import Derive, Expect, Field, Forward, Json, Lookup, Topic
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.ingest import records
from support.waiting import eventually

SECONDS = 180
START_MS = 1_700_000_000_000
MODULE = """
from headrace.spark.pipelines import Expect, Field, Forward, Json, Topic

alarms = Forward(
    "alarms",
    source=Topic({source!r}, Json(Field("n", "long", required=True), Field("level"))),
    to={to!r},
    expectations=(Expect("a level", "level is not null"),),
)
"""


class Ways:
    """A topic, another one, and a forward between them."""

    def __init__(self, cluster, source, to, lake: Path):
        self.cluster, self.source, self.to, self.lake = cluster, source, to, lake
        self.forward = Forward(
            "alarms",
            source=Topic(
                source,
                Json(Field("n", "long", required=True), Field("level"), Field("at", "time")),
            ),
            to=to,
            steps=(Derive("twice", "n * 2"),),
            expectations=(
                Expect("a level", "level is not null"),
                Expect("a small number", "n < 5", "warn"),
            ),
            where="level != 'low'",
            key="level",
        )

    def send(self, *numbers, level="high"):
        self.send_raw(
            *(orjson.dumps({"n": n, "level": level, "at": START_MS + n}) for n in numbers)
        )

    def send_raw(self, *values):
        with hr.Producer(self.cluster.bootstrap) as producer:
            for number, value in enumerate(values):
                producer.send(self.source, value, key=f"k{number}", partition=number % 2)

    def run(self, stop=None, on_batch=lambda _batch: None, **options):
        wanted = StreamOptions(self.forward, str(self.lake), group=self.to, **options)
        self.told = []

        def tell(batch):
            self.told.append(batch)
            on_batch(batch)

        return stream(wanted, Connection(self.cluster.bootstrap), on_batch=tell, stop=stop)

    def arrived(self):
        """By key and value; none is there twice."""
        found = records(self.cluster, self.to)
        rows = [dict(record.headers)["headrace-row"] for record in found]
        assert len(set(rows)) == len(rows)
        return sorted((record.key, record.value) for record in found)

    def dead(self):
        return {
            record.value: {name: value.decode() for name, value in record.headers}
            for record in records(self.cluster, f"{self.source}.alarms.dead")
        }


@pytest.fixture
def ways(kafka_cluster, make_topic, tmp_path, spark):
    return Ways(kafka_cluster, make_topic(2), make_topic(2), tmp_path / "lake")


def sent(*numbers, level="high"):
    """What must arrive: fields by their columns, times as they came."""
    return sorted(
        (
            level.encode(),
            orjson.dumps({"n": n, "level": level, "at": START_MS + n, "twice": n * 2}),
        )
        for n in numbers
    )


def forget_last_commit(lake: Path) -> None:
    commits = lake / "_checkpoints/alarms/commits"
    newest = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)


def test_each_good_record_goes_on_once_and_each_bad_one_is_a_dead_letter(ways, admin):
    ways.send(*range(8))
    ways.send(8, 9, level="low")
    ways.send_raw(b"no JSON", b'{"n": 1}', b'{"n": 3, "level": "odd", "colour": "red"}', None)
    done = ways.run()
    assert (done.rows_in, done.rows_out, done.rows_dead) == (14, 9, 3)
    unmet = [batch.counts.unmet.get("a small number", 0) for batch in ways.told]
    assert sum(unmet) == 5  # only a warning
    odd = {"n": 3, "level": "odd", "twice": 6, "rescued": '{"colour":"red"}'}
    assert ways.arrived() == sorted([*sent(*range(8)), (b"odd", orjson.dumps(odd))])
    dead = ways.dead()
    assert {value: found["headrace-reason"] for value, found in dead.items()} == {
        b"no JSON": "the value is no JSON object",
        b'{"n": 1}': "not as expected: a level",
        None: "the value is null",
    }
    place = dead[b"no JSON"]
    assert (place["headrace-topic"], place["headrace-partition"]) == (ways.source, "0")
    assert place["headrace-row"] == f"{ways.source}:0:{place['headrace-offset']}"
    assert sum(admin.committed(ways.to).values()) == 14

    before = ways.arrived(), len(records(ways.cluster, f"{ways.source}.alarms.dead"))
    forget_last_commit(ways.lake)
    ways.run()
    assert ways.run().rows_in == 0
    assert before == (ways.arrived(), len(records(ways.cluster, f"{ways.source}.alarms.dead")))

    admin.delete_topic(ways.source)
    admin.create_topic(ways.source, 2, 3)
    ways.send(*range(50))  # more than before: offsets alone do not tell
    with pytest.raises(BadInput, match="was deleted and made again"):
        ways.run()


def test_what_the_other_topic_would_refuse_is_a_dead_letter(ways, admin):
    """One such record would fail its batch, in every run."""
    admin.set_configs(ways.to, {"max.message.bytes": "20000", "cleanup.policy": "compact"})
    ways.forward = replace(ways.forward, key="if(n = 4, null, level)")
    large = b'{"n": 3, "level": "high", "colour": "%s"}' % (b"x" * 30_000)
    ways.send(1, 2, 4)
    ways.send_raw(large)
    with hr.Producer(ways.cluster.bootstrap) as producer:
        headers = [("headrace-row", b"i" * 20_000)]
        producer.send(ways.source, b'{"n": 5, "level": "high"}', headers=headers)
    ways.send(*range(10, 1_010))  # more than a batch of the other topic takes
    done = ways.run()
    assert (done.rows_in, done.rows_out, done.rows_dead) == (1_005, 1_002, 3)
    assert ways.arrived() == sent(1, 2, *range(10, 1_010))
    found = {
        headers["headrace-reason"]: headers["headrace-row"] for headers in ways.dead().values()
    }
    no_key, *too_large = sorted(found, key=len)
    assert no_key == f"has no key, and topic {ways.to} is compacted"
    assert all(re.match(r"has [23]\d{4} bytes with its key and id, more", r) for r in too_large)
    assert max(found.values(), key=len) == "i" * 1_000
    assert ways.run().rows_in == 0


@pytest.mark.long(15)
def test_a_topic_that_is_made_again_while_the_forward_runs(ways, admin):
    def make_again(_batch):
        admin.delete_topic(ways.source)
        admin.create_topic(ways.source, 2, 3)

    ways.send(*range(8))
    with pytest.raises(BadInput, match="was deleted and made again"):
        ways.run(every=2.0, on_batch=make_again)
    ways.send(*range(50))
    with pytest.raises(BadInput, match="was deleted and made again"):
        ways.run()
    assert ways.arrived() == sent(*range(8))


def test_in_real_time_records_come_through_while_it_runs_and_a_batch_goes_on_from_there(
    ways, admin
):
    stop = threading.Event()
    done = []
    running = threading.Thread(
        target=lambda: done.append(ways.run(stop, realtime=True, every=2.0)), daemon=True
    )
    running.start()
    try:
        for numbers in ((1, 2, 3), (4, 5)):
            ways.send(*numbers)
            eventually(
                lambda last=numbers[-1]: set(sent(last)) <= set(ways.arrived()), "alerts", SECONDS
            )
        ways.send_raw(b"no JSON", b'{"n": 6, "level": "%s"}' % (b"x" * 950_000))
        eventually(lambda: len(ways.dead()) == 2, "dead letters", SECONDS)
        assert running.is_alive()
    finally:
        stop.set()
        running.join(SECONDS)
    (result,) = done
    assert (result.rows_in, result.rows_out, result.rows_dead) == (7, 5, 2)
    assert ways.dead()[b"no JSON"]["headrace-reason"] == "the value is no JSON object"
    assert sum(admin.committed(ways.to).values()) == 7
    ways.send(6)
    assert ways.run().rows_in == 1
    assert ways.arrived() == sent(*range(1, 7))
    admin.add_partitions(ways.source, 64)
    with pytest.raises(BadInput, match="64 partitions, but Spark has"):
        ways.run(stop, realtime=True)


def with_lookup(ways, tmp_path, title):
    titles = tmp_path / "titles.csv"
    titles.write_text(f"level,title\nhigh,{title}\n")
    steps = (Lookup(str(titles), "level", ("title",)),)
    ways.forward = replace(ways.forward, steps=steps, value=("n", "title"))


@pytest.mark.long(15)
def test_what_was_sent_stays_sent_though_a_lookup_or_the_definition_has_changed(ways, tmp_path):
    """A batch that is run again is not compared with what it would be now."""
    ways.send(1, 2)
    with_lookup(ways, tmp_path, "Old")
    ways.run()
    before = ways.arrived()
    assert {orjson.loads(value)["title"] for _, value in before} == {"Old"}
    forget_last_commit(ways.lake)
    with_lookup(ways, tmp_path, "New")
    ways.forward = replace(ways.forward, key="n")
    ways.run()
    assert ways.arrived() == before
    ways.send(3)
    ways.run()
    added = [pair for pair in ways.arrived() if pair not in before]
    assert added == [(b"3", b'{"n":3,"title":"New"}')]


@pytest.mark.long(15)
def test_real_time_mode_knows_lookups(ways, tmp_path):
    with_lookup(ways, tmp_path, "High")
    stop = threading.Event()
    running = threading.Thread(target=lambda: ways.run(stop, realtime=True, every=2.0), daemon=True)
    running.start()
    try:
        ways.send(1)
        wanted = [(b"high", b'{"n":1,"title":"High"}')]
        eventually(lambda: ways.arrived() == wanted, "the record", SECONDS)
    finally:
        stop.set()
        running.join(SECONDS)
    assert not running.is_alive()


@pytest.fixture
def module(kafka_cluster, make_topic, tmp_path):
    source, to = make_topic(3), make_topic(3)
    (tmp_path / "plant.py").write_text(MODULE.format(source=source, to=to))
    return Ways(kafka_cluster, source, to, tmp_path / "lake")


def rows_arrived(ways):
    return [orjson.loads(record.value)["n"] for record in records(ways.cluster, ways.to)]


@pytest.mark.long(40)
def test_a_driver_that_is_killed_and_a_commit_that_is_lost_repeat_nothing(headrace, module):
    """SIGKILL hits the driver and its JVM while records are on their way."""
    module.send(*range(300))
    arguments = ["stream", "plant:alarms", "--lake", "lake"]
    commits = module.lake / "_checkpoints/alarms/commits"
    with headrace.killed(*arguments, "--every", "100ms", "--records-per-batch", "20"):
        eventually(lambda: (commits / "1").exists(), "two batches", SECONDS, every=0.01)
    assert 0 < len(rows_arrived(module)) < 300
    forget_last_commit(module.lake)
    done = headrace(*arguments, "--once", "-o", "json", seconds=SECONDS).json
    assert done["rows_in"] > 0
    assert sorted(rows_arrived(module)) == list(range(300))


@pytest.mark.long(40)
def test_real_time_mode_loses_nothing_when_it_is_killed(headrace, module):
    """At least once: what came since the last batch comes again."""
    arguments = ("stream", "plant:alarms", "--lake", "lake", "--realtime", "-o", "json")
    with headrace.killed(*arguments):
        module.send(*range(20))
        eventually(lambda: len(rows_arrived(module)) >= 20, "the first ones", SECONDS)
    module.send(*range(20, 40))
    with headrace.start(*arguments) as running:
        eventually(lambda: set(rows_arrived(module)) == set(range(40)), "all of them", SECONDS)
        running.process.send_signal(signal.SIGTERM)
        assert running.finish(seconds=SECONDS).json["rows_dead"] == 0


@pytest.mark.long(40)
def test_a_signal_ends_real_time_mode_in_order(headrace, module, admin):
    module.send(1)
    arguments = ("stream", "plant:alarms", "--lake", "lake", "--realtime", "-o", "json")
    with headrace.start(*arguments) as running:
        eventually(lambda: rows_arrived(module) == [1], "a record", SECONDS)
        running.process.send_signal(signal.SIGTERM)
        done = running.finish(seconds=SECONDS).json
    assert {name: done[name] for name in ("rows_in", "rows_out", "rows_dead")} == {
        "rows_in": 1,
        "rows_out": 1,
        "rows_dead": 0,
    }
    assert done["batches"] == 1
    assert sum(admin.committed("headrace-alarms").values()) == 1
