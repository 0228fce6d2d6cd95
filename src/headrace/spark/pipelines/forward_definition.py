"""A pipeline from a source to a topic, as plain data.

>>> from headrace.spark.pipelines import Field, Forward, Json, Topic
>>> alarms = Forward(
...     "alarms",
...     source=Topic("alerts", Json(Field("stage", "long", required=True), Field("level"))),
...     to="alarms",
...     where="level = 'Critical'",
...     key="stage",
... )
>>> alarms.columns_sent
('stage', 'level', 'rescued')
"""

import re
from dataclasses import dataclass

from headrace.errors import ConfigError
from headrace.spark.pipelines.definition import Expect, Source, Step, Topic, check_way, columns_of
from headrace.spark.pipelines.fields import RESCUED, RESERVED, Avro

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class Forward:
    """From a source to a topic, record by record.

    `to` is the topic. Only rows that meet `where` go on; one that is null is not met. `key` is an
    expression for the key, else the record keeps its own. `value` names the columns of the JSON
    value, else all declared ones are sent. Lookups are read once, when a run starts.
    """

    name: str
    source: Source
    to: str
    steps: tuple[Step, ...] = ()
    expectations: tuple[Expect, ...] = ()
    where: str | None = None
    key: str | None = None
    value: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_way(self, [("value", column) for column in self.value])
        self._check_target()
        self._check_source()
        for expectation in self.expectations:
            if expectation.action == "fail":
                raise ConfigError(
                    f"pipeline {self.name!r}: expectation {expectation.name!r} is to fail, but "
                    "records before it are on their way by then",
                    hint="action 'drop' makes such records dead letters",
                )
        if len(set(self.value)) < len(self.value):
            raise ConfigError(
                f"pipeline {self.name!r}: value names a column twice: {', '.join(self.value)}",
                hint="name each once",
            )

    def _check_source(self) -> None:
        if not isinstance(self.source, Topic):
            return
        if isinstance(self.source.value, Avro):
            raise ConfigError(
                f"pipeline {self.name!r} has Avro values: they are read batch by batch, but a "
                "forward has no batches of its own",
                hint="JSON or CSV values, or a pipeline to tables",
            )
        if self.source.value.drift == "evolve":
            raise ConfigError(
                f"pipeline {self.name!r}: drift is 'evolve', but a topic has no columns to add",
                hint="'rescue' sends fields that nobody declared on, in field `rescued`",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that expressions may name, Headrace's own among them."""
        return columns_of(self.source.fields, self.steps)

    @property
    def columns_sent(self) -> tuple[str, ...]:
        """The columns of the value; what nobody declared is among them, if it is kept."""
        if self.value:
            return self.value
        own = tuple(name for name in self.columns if name not in RESERVED)
        kept = isinstance(self.source, Topic) and self.source.value.drift == "rescue"
        return (*own, RESCUED) if kept else own

    def _check_target(self) -> None:
        if not _TOPIC.fullmatch(self.to) or self.to in (".", ".."):
            raise ConfigError(
                f"pipeline {self.name!r} goes to topic {self.to!r}",
                hint="letters, digits, '.', '_' and '-' only",
            )
        if self.to in getattr(self.source, "names", ()):
            raise ConfigError(
                f"pipeline {self.name!r} goes from topic {self.to} to itself",
                hint="give `to` another topic",
            )
