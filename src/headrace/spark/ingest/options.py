"""What a run is asked to do, what it did, and what makes no sense."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.clients import Connection
from headrace.clients.registries import registry_of
from headrace.errors import BadInput
from headrace.spark.ingest.avro_schema import avro_of, check_names
from headrace.spark.ingest.formats import Format, ValueFormat, check_value
from headrace.spark.ingest.schema import RowSchema

Guarantee = Literal["exactly-once", "at-least-once"]


@dataclass(frozen=True)
class IngestOptions:
    """What to send where, and how."""

    paths: Sequence[str]
    topic: str
    schema: RowSchema
    key: str | None = None
    format: Format | None = None  # else by each file's suffix
    value: ValueFormat = "json"
    guarantee: Guarantee = "exactly-once"
    event_time: bool = False
    max_bad: float = 0.1
    changed_is_new: bool = False
    master: str | None = None

    @property
    def dead_topic(self) -> str:
        return f"{self.topic}.dead"


@dataclass(frozen=True)
class IngestResult:
    """Every row of the files, accounted for: sent now, dead now, or skipped as sent before."""

    files: int
    rows_read: int
    rows_sent: int
    rows_dead: int
    rows_skipped: int
    seconds: float
    rows_per_second: float


def check_options(options: IngestOptions, files: Sequence[str], connection: Connection) -> None:
    """Refuse what can be known to fail before anything is made or sent."""
    if options.key is not None:
        options.schema.column(options.key)
    if options.event_time and options.schema.time is None:
        raise BadInput(
            f"--event-time needs a time, and schema {options.schema.name!r} names none",
            hint='time = "COLUMN" in a TOML file; an Avro schema must have just one timestamp',
        )
    if options.event_time and options.guarantee == "at-least-once":
        raise BadInput(
            "--event-time needs exactly-once: Spark's own sink gives records no time",
            hint="leave --guarantee out",
        )
    check_value(options.value, files, options.format)
    if options.value == "avro":
        check_names(avro_of(options.schema))
        registry_of(connection)  # refuses a cluster without one
