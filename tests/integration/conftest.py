"""Fixtures that several files share: an app to give consumers to, and a topic to ingest into."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.clients import Admin, Connection
from headrace.errors import TopicNotFound
from support.ingest import SMALL_CHUNK

# --- consumers ---


@pytest.fixture
def bootstrap(kafka_cluster: hr.LocalCluster) -> str:
    return kafka_cluster.bootstrap


@pytest.fixture
def events() -> list[object]:
    """What `app` has told."""
    return []


@pytest.fixture
def app(bootstrap: str, events: list[object]) -> hr.App:
    return hr.App(bootstrap, on_event=events.append)


# --- ingest; Spark is imported when a test asks for it, as it may not be installed ---


@pytest.fixture
def topic(make_topic: Callable[..., str], admin: Admin) -> Iterator[str]:
    """A topic of three partitions, each on three brokers; its dead letters go with it."""
    name = make_topic(3)
    yield name
    with contextlib.suppress(TopicNotFound):
        admin.delete_topic(f"{name}.dead")


@pytest.fixture
def send(spark: object, kafka_cluster: hr.LocalCluster, topic: str) -> Callable[..., Any]:
    """Ingest paths into the topic."""
    from headrace.spark.ingest.job import ingest
    from headrace.spark.ingest.options import IngestOptions
    from headrace.spark.ingest.schema import CLICKSTREAM

    def run(*paths: object, schema: Any = CLICKSTREAM, **options: Any) -> Any:
        wanted = IngestOptions(list(map(str, paths)), topic, schema, **options)
        return ingest(wanted, Connection(kafka_cluster.bootstrap))

    return run


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are not large have several chunks all the same."""
    from headrace.spark.ingest import files
    from headrace.spark.ingest.chunks import plan_chunks

    monkeypatch.setattr(files, "plan_chunks", functools.partial(plan_chunks, size=SMALL_CHUNK))
