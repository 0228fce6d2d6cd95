"""The factory's pipeline: three topics, three tables, compared with what Python works out."""

import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import orjson
import pytest

import headrace as hr
from headrace.clients import Connection
from headrace.errors import BadInput, TopicNotFound
from headrace.services.backfill import execute_backfill, plan_backfill
from headrace.services.reconcile_sources import ReconcileOptions, reconcile
from headrace.services.replay import Wish, of_topic
from headrace.spark.pipelines.factory import LEVELS, factory
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.ingest import records
from support.lake import infos, table
from support.waiting import eventually

SECONDS = 120
START = datetime(2024, 5, 1, tzinfo=UTC)
LENGTH, STEP = timedelta(minutes=10), timedelta(minutes=5)


class Plant:
    """Three topics and their tables."""

    def __init__(self, cluster, topics, lake):
        self.cluster, self.topics, self.lake = cluster, topics, lake
        self.pipeline = factory(*topics.values())

    def send(self, alerts):
        with hr.Producer(self.cluster.bootstrap) as producer:
            for part, alert in alerts:
                producer.send(self.topics[part], orjson.dumps(alert), key=alert["stageId"])

    def run(self, stop=None, **options):
        group = f"group-{self.topics['audit']}"
        wanted = StreamOptions(self.pipeline, str(self.lake), group=group, **options)
        return stream(wanted, self.connection, stop=stop)

    @property
    def connection(self):
        return Connection(self.cluster.bootstrap)

    def reconcile(self, part="audit", *, full=True):
        wanted = ReconcileOptions(self.topics[part], str(self.lake), full=full)
        return reconcile(wanted, self.connection)

    def put_back(self, part):
        """What is missing of a topic."""
        topic, lake = self.topics[part], str(self.lake)
        pipeline = of_topic(self.pipeline, topic, alone=False)
        plan = plan_backfill(Wish(topic, "earliest", "latest", pipeline, lake), self.connection)
        return execute_backfill(plan, self.connection)


def some_alerts(count, first=0):
    """Which topic, and the alert: in no order of time."""
    dice = random.Random(first)
    for number in range(first, first + count):
        moment = START + timedelta(seconds=dice.randrange(3600))
        yield (
            dice.choice(("audit", "trend", "alert")),
            {
                "alertId": number,
                "stageId": f"stage-{dice.randrange(4)}",
                "alertLevel": dice.choice(LEVELS),
                "alertMessage": f"call {number}",
                "time": round(moment.timestamp() * 1000),
            },
        )


def moment_of(alert):
    return datetime.fromtimestamp(alert["time"] / 1000, UTC)


def trend(alerts):
    counts, last = Counter(), {}
    for alert in (alert for part, alert in alerts if part == "trend"):
        moment = moment_of(alert)
        begin = START + (moment - START) // STEP * STEP
        while begin + LENGTH > moment:
            key = (alert["stageId"], alert["alertLevel"], begin, begin + LENGTH)
            counts[key] += 1
            last[key] = max(last.get(key, moment), moment)
            begin -= STEP
    return {(*key, count, last[key]) for key, count in counts.items()}


def newest(alerts, places):
    """By time; of the same moment the one that is further on in the topic."""
    found = {}
    for alert in (alert for part, alert in alerts if part == "alert"):
        order = (alert["time"], places[alert["alertId"]])
        if order > found.get(alert["stageId"], ((0, (0, 0)), None))[0]:
            found[alert["stageId"]] = (order, alert)
    return {
        (stage, alert["alertId"], alert["alertLevel"], alert["alertMessage"])
        for stage, (_, alert) in found.items()
    }


@pytest.fixture
def plant(kafka_cluster, make_topic, tmp_path, spark):
    topics = {part: make_topic(2) for part in ("audit", "trend", "alert", "critical")}
    return Plant(kafka_cluster, topics, tmp_path / "lake")


def test_three_topics_become_three_tables_and_each_topic_must_stay_what_it_was(plant, admin):
    alerts = list(some_alerts(120))
    plant.send(alerts[:70])
    plant.send([("audit", alerts[0][1] | {"alertLevel": "Odd"})])
    first = plant.run()
    assert (first.rows_in, first.rows_out, first.rows_dead) == (71, 70, 1)
    plant.send(alerts[70:])
    assert plant.run().rows_out == 50

    rows = table(plant.lake, "alerts")
    assert sorted(row["alert_id"] for row in rows) == list(range(120))
    by_topic = {plant.topics[part]: part for part in plant.topics}
    found = {(by_topic[row["kafka_topic"]], row["alert_id"], row["time"]) for row in rows}
    assert found == {(part, a["alertId"], moment_of(a)) for part, a in alerts}
    assert {tuple(row.values()) for row in table(plant.lake, "trend")} == trend(alerts)
    places = {
        orjson.loads(record.value)["alertId"]: (record.partition, record.offset)
        for record in records(plant.cluster, plant.topics["alert"])
    }
    columns = ("stage_id", "alert_id", "alert_level", "alert_message")
    stages = {tuple(row[name] for name in columns) for row in table(plant.lake, "stages")}
    assert stages == newest(alerts, places)

    last = infos(plant.lake, "alerts")[-1]["so_far"]
    three = [plant.topics[part] for part in ("audit", "trend", "alert")]
    assert last["topic_ids"] == {name: admin.topic_id(name) for name in three}
    assert set(last["ranges"]) == set(three)
    admin.delete_topic(plant.topics["alert"])  # not the first of them
    admin.create_topic(plant.topics["alert"], 2, 3)
    plant.send([("alert", alert) for _, alert in some_alerts(300)])
    with pytest.raises(BadInput, match=f"{plant.topics['alert']} was deleted and made again"):
        plant.run()
    assert len(table(plant.lake, "alerts")) == 120


def test_all_topics_that_are_missing_are_named_with_what_makes_them(kafka_cluster, tmp_path):
    wanted = StreamOptions(factory("audit-x", "trend-x", "alert-x"), str(tmp_path))
    with pytest.raises(TopicNotFound, match="no topics audit-x, trend-x, alert-x") as error:
        stream(wanted, Connection(kafka_cluster.bootstrap))
    assert "headrace topic create audit-x && headrace topic create trend-x" in str(error.value.hint)


@pytest.mark.long(30)
def test_three_topics_are_reconciled_as_one_and_what_is_missing_is_named_by_topic(plant, spark):
    alerts = list(some_alerts(60))
    plant.send([*alerts, ("trend", alerts[0][1] | {"alertLevel": "Odd"})])
    plant.run()
    for account in (plant.reconcile("trend", full=False), plant.reconcile("alert")):
        assert account.balanced, account
        assert account.topics == tuple(plant.topics[part] for part in ("audit", "trend", "alert"))
        assert (account.kafka_rows, account.table_rows, account.dead_rows) == (61, 60, 1)

    lost = next(alert for part, alert in alerts if part == "trend")
    alerts_table, letters = (f"delta.`{plant.lake / name}`" for name in ("alerts", "dead_letters"))
    spark.sql(f"DELETE FROM {alerts_table} WHERE alert_id = {lost['alertId']}")
    spark.sql(f"DELETE FROM {letters}")
    account = plant.reconcile()
    named = [finding for finding in account.findings if "neither rows nor" in finding.what]
    assert (account.balanced, account.missing) == (False, 2)
    assert {finding.where.partition("[")[0] for finding in named} == {plant.topics["trend"]}
    assert sum(finding.count for finding in named) == 2

    done = plant.put_back("trend")
    assert (done.rows, done.dead) == (1, 1)
    assert plant.reconcile().balanced
    assert {tuple(row.values()) for row in table(plant.lake, "trend")} == trend(alerts)

    plant.send([("audit", alert) for _, alert in some_alerts(5, first=60)])
    unread = plant.reconcile("alert", full=False)
    assert (unread.balanced, unread.unread) == (False, 5)


def test_critical_alerts_are_sent_on_in_real_time_and_bad_ones_are_dead_letters(plant):
    stop, done = threading.Event(), []
    running = threading.Thread(
        target=lambda: done.append(plant.run(stop, realtime=True, every=2.0)), daemon=True
    )
    alerts = list(some_alerts(90))
    wanted = {
        a["alertId"] for part, a in alerts if (part, a["alertLevel"]) == ("alert", "Critical")
    }
    dead = f"{plant.topics['alert']}.factory_critical.dead"
    running.start()
    try:
        plant.send(alerts)
        plant.send([("alert", alerts[0][1] | {"alertLevel": "Odd"})])
        eventually(lambda: wanted <= set(sent_on(plant)), "critical alerts", SECONDS)
        (letter,) = eventually(lambda: records(plant.cluster, dead), "a dead letter", SECONDS)
        assert running.is_alive()
    finally:
        stop.set()
        running.join(SECONDS)
    assert set(sent_on(plant)) == wanted
    assert dict(letter.headers)["headrace-reason"] == b"not as expected: a known level"
    (result,) = done
    read = sum(part == "alert" for part, _ in alerts) + 1
    assert (result.rows_in, result.rows_out, result.rows_dead) == (read, len(wanted), 1)


def sent_on(plant):
    """The ids of alerts in the topic of critical ones, which are there by stage."""
    arrived = records(plant.cluster, plant.topics["critical"])
    found = [(record.key, orjson.loads(record.value)) for record in arrived]
    assert all(key.decode() == alert["stage_id"] for key, alert in found)
    return [alert["alert_id"] for _, alert in found]
