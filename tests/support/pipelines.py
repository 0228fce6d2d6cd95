"""A topic, a pipeline and its tables."""

import secrets
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.clients import Connection
from headrace.observe import Progress
from headrace.spark.pipelines import CLICKSTREAM, Field, Json, Pipeline, Rows, Topic
from headrace.spark.pipelines.batch import BatchDone
from headrace.spark.pipelines.forward_definition import Forward
from headrace.spark.pipelines.runner import StreamOptions, StreamResult, stream
from support.ingest import records
from support.lake import Event

CLICKS = Topic("clicks", Json(Field("page", required=True), Field("n", "long")))


def simple(drift: str = "rescue", **more: Any) -> Pipeline:
    """Clicks on pages, and what a test adds."""
    value = Json(*CLICKS.value.fields, drift=drift)
    return Pipeline("clicks", source=Topic("clicks", value), rows=Rows("clicks"), **more)


class Rig:
    """Sends to the topic, runs a pipeline, and looks at what became of it."""

    def __init__(self, cluster: hr.LocalCluster, topic: str, lake: Path) -> None:
        self.cluster, self.topic, self.lake = cluster, topic, lake
        self.group = f"group-{secrets.token_hex(3)}"

    def send(self, events: Iterable[Event], partition: int | None = None) -> None:
        self.send_raw([(event.to_json(), event.row) for event in events], partition)

    def send_raw(
        self,
        values: Iterable[tuple[bytes | None, Any]],
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        """Values as they are, each with its row id, if it has one."""
        with hr.Producer(self.cluster.bootstrap) as producer:
            for value, row in values:
                named = [] if row is None else [("headrace-row", row)]
                producer.send(
                    self.topic, value, headers=[*headers, *named] or None, partition=partition
                )

    def run(
        self,
        pipeline: Pipeline | Forward = CLICKSTREAM,
        on_batch: Callable[[BatchDone], None] | None = None,
        stop: threading.Event | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> StreamResult:
        wanted = StreamOptions(
            pipeline, str(self.lake), **{"topic": self.topic, "group": self.group} | options
        )
        connection = Connection(self.cluster.bootstrap)
        return stream(wanted, connection, progress, on_batch=on_batch, stop=stop)

    def dead(self, pipeline: str = "clickstream") -> list[tuple[int, int, Any, str]]:
        """The topic of dead letters: where each came from, its value and the reason; sorted."""
        found = [
            (r.value, dict(r.headers)) for r in records(self.cluster, self.dead_topic(pipeline))
        ]
        return sorted(
            (
                int(headers["headrace-partition"]),
                int(headers["headrace-offset"]),
                value,
                headers["headrace-reason"].decode(),
            )
            for value, headers in found
        )

    def dead_topic(self, pipeline: str = "clickstream") -> str:
        return f"{self.topic}.{pipeline}.dead"
