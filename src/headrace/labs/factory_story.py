"""A part of the factory's labs: alerts, and the pipeline that makes tables of them on Spark."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.labs.stage import Stage

if TYPE_CHECKING:
    from headrace.spark.pipelines.runner import StreamResult

LEVELS = {"Critical": 2, "Major": 3, "Minor": 4, "Warning": 4}  # and how often, relatively


@dataclass(frozen=True)
class Alert:
    """What a stage of the factory reports, named as in its JSON. Time is in milliseconds, UTC."""

    alertId: int  # noqa: N815
    stageId: str  # noqa: N815
    alertLevel: str  # noqa: N815
    alertMessage: str  # noqa: N815
    time: int


def has_spark(stage: Stage) -> bool:
    """Whether there is one; if not, the facts say so."""
    if importlib.util.find_spec("pyspark") is not None:
        return True
    stage.fact("on Spark", "left out: pip install 'headrace[spark]'")
    return False


class Tables:
    """The factory's pipeline in a folder. Topics that are not given are made, and stay empty."""

    def __init__(self, stage: Stage, lake: Path, topics: Mapping[str, str]) -> None:
        from headrace.spark.pipelines.factory import factory

        names = {"audit": "kinaction_audit", "trend": "kinaction_alerttrend"}
        names["alert"] = "kinaction_alert"
        made = {part: stage.topic(name) for part, name in names.items() if part not in topics}
        self._pipeline = factory(**made, **topics)
        self._stage, self._lake = stage, lake
        self._dead, self._group = stage.topic("factory-dead"), stage.group("factory")

    def update(self) -> "StreamResult":
        """Read what has come since the last time."""
        from headrace.spark.pipelines.runner import StreamOptions, stream

        options = StreamOptions(
            self._pipeline, str(self._lake), group=self._group, dead_topic=self._dead
        )
        return stream(options, self._stage.connection)

    def rows(self, table: str, columns: str) -> list[dict[str, Any]]:
        from headrace.services.delta_tables import Snapshot

        found = Snapshot(self._lake / table).select(columns)
        return [row for batch in found for row in batch.to_pylist()]
