"""A part of the lab `replay`: clicks times a factor, as a pipeline that is replayed on Spark."""

import importlib.util
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.labs.stage import Stage

if TYPE_CHECKING:
    from headrace.spark.pipelines import Pipeline


@dataclass(frozen=True)
class Replayed:
    """The results by partition and offset, and by day. `counts` are the records that the dry run
    counted, the tables after it, the records of the replay, and those of a second one."""

    rows: dict[tuple[int, int], Decimal]
    days: dict[str, Decimal]
    counts: tuple[int, int, int, int]


def replay_on_spark(stage: Stage, topic: str, begin: str, factor: Decimal) -> Replayed | None:
    """Everything from a time on, into a lake of its own; None if there is no Spark."""
    if importlib.util.find_spec("pyspark") is None:
        stage.fact("on Spark", "left out: pip install 'headrace[spark]'")
        return None
    from headrace.services.replay import Doing, Wish, execute_replay, plan_replay

    with tempfile.TemporaryDirectory(prefix="headrace-lab-") as lake:
        wish = Wish(topic, begin, "latest", _pipeline(topic, factor), lake)
        plan = plan_replay(wish, stage.connection)
        tables = len(list(Path(lake).iterdir()))
        stage.say(f"replaying {plan.total} records on Spark, times {factor}")
        doing = Doing(records_per_batch=plan.total)
        done, again = (execute_replay(plan, doing, stage.connection) for _ in range(2))
        return Replayed(
            rows={(p, at): result for p, at, result in _read(lake, "results", _PLACED)},
            days=dict(_read(lake, "days", "day, total")),
            counts=(plan.total, tables, done.rows_in, again.rows_in),
        )


_PLACED = "kafka_partition, kafka_offset, result"


def _pipeline(topic: str, factor: Decimal) -> "Pipeline":
    from headrace.spark.pipelines import Derive, Field, Json, Pipeline, Rows, Sum, Topic, Totals

    return Pipeline(
        "results",
        source=Topic(topic, Json(Field("clicks", "long", required=True))),
        steps=(
            Derive("result", f"clicks * {factor}"),
            Derive("day", "date_format(kafka_time, 'yyyy-MM-dd')"),
        ),
        rows=Rows("results"),
        derived=(Totals("days", {"day": "day"}, {"total": Sum("result", type="decimal(18,3)")}),),
    )


def _read(lake: str, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    from headrace.services.delta_tables import Snapshot

    for batch in Snapshot(Path(lake) / table).select(columns):
        yield from (tuple(row.values()) for row in batch.to_pylist())
