"""`stream` as a process: stopped in order, killed in the middle, refused with a reason."""

import signal

import pytest

import headrace as hr
from support.lake import assert_tables, infos, some_events
from support.waiting import eventually

pytestmark = pytest.mark.processes
SECONDS = 120


@pytest.fixture
def topic(make_topic):
    return make_topic(3)


def send(cluster, topic, events):
    with hr.Producer(cluster.bootstrap) as producer:
        for event in events:
            producer.send(topic, event.to_json(), headers=[("headrace-row", event.row)])


def commits(lake, table):
    return len(list((lake / table / "_delta_log").glob("*.json")))


def test_a_driver_killed_between_two_tables_is_finished_by_the_next(
    headrace, kafka_cluster, topic, tmp_path
):
    """SIGKILL hits the driver and its JVM; the folder is named as seen from here."""
    events = some_events(300)
    send(kafka_cluster, topic, events)
    arguments = ["stream", "clickstream", "--topic", topic, "--lake", "lake"]
    lake = tmp_path / "lake"
    with headrace.killed(*arguments, "--every", "100ms", "--records-per-batch", "30"):
        eventually(lambda: commits(lake, "sessions") >= 2, "a second batch", SECONDS, every=0.01)
    assert commits(lake, "events") <= commits(lake, "sessions") < 10
    done = headrace(*arguments, "--once", "-o", "json", seconds=SECONDS).json
    assert 0 < done["rows_in"] < 300
    assert_tables(lake, events)


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long(30))]
)
def test_a_signal_ends_a_stream_in_order(headrace, kafka_cluster, topic, tmp_path, admin, how):
    events = some_events(50)
    send(kafka_cluster, topic, events)
    arguments = ("stream", "clickstream", "--topic", topic, "--lake", "lake", "--group", topic)
    with headrace.start(*arguments, "--every", "1s", "-o", "json") as running:
        eventually(lambda: commits(tmp_path / "lake", "events"), "a batch", SECONDS)
        eventually(lambda: topic in admin.group_names(), "its lag is shown", SECONDS)
        running.process.send_signal(how)
        done = running.finish(seconds=SECONDS)
    assert done.json["rows_out"] == 50
    assert sum(admin.committed(topic).values()) == 50
    assert_tables(tmp_path / "lake", events)
    assert len(infos(tmp_path / "lake", "events")) == done.json["batches"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nope", "--once"), "there is no pipeline 'nope'"),
        (("clickstream",), "give --once, --every or --realtime"),
        (("clickstream", "--once", "--every", "10s"), "give --once, --every or --realtime"),
        (("factory", "--once", "--realtime"), "give --once, --every or --realtime"),
        (("clickstream", "--realtime"), "writes tables, which real-time mode cannot"),
        (("clickstream", "--every", "soon"), "'soon' is no span of time"),
        (("clickstream", "--once", "--topic", "nope"), "there is no topic nope"),
    ],
)
def test_what_is_wrong_is_said(headrace, arguments, complaint):
    done = headrace.refused(2, "stream", *arguments, "--lake", "lake")
    assert complaint in done.error
