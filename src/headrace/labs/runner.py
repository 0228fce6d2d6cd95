"""Runs labs one after the other on one cluster and judges them."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.clients import Connection
from headrace.errors import BadInput, HeadraceError
from headrace.labs.catalog import Lab
from headrace.labs.stage import Check, Stage
from headrace.local import LocalCluster
from headrace.observe import Progress
from headrace.observe.signals import follows_interrupt

logger = logging.getLogger("headrace.labs")


@dataclass(frozen=True)
class LabResult:
    """What came of one lab."""

    name: str
    promise: str
    held: bool
    seconds: float
    facts: dict[str, Any]
    checks: tuple[Check, ...]
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "promise": self.promise,
            "held": self.held,
            "seconds": round(self.seconds, 2),
            "facts": self.facts,
            "checks": [{"claim": check.claim, "held": check.held} for check in self.checks],
            "error": self.error,
        }


def run_labs(
    labs: Sequence[Lab],
    progress: Progress,
    *,
    given: Connection | None = None,
    local: LocalCluster | None = None,
    on_result: Callable[[LabResult], None] = lambda _result: None,
) -> list[LabResult]:
    """Run the labs on the given cluster, or on one of their own that is gone afterwards."""
    results = []
    with _cluster(labs, progress, given, local) as (connection, cluster):
        for lab in labs:
            progress.step(f"lab {lab.name}: {lab.promise}")
            result = run_lab(lab, Stage(connection, cluster, progress))
            on_result(result)
            results.append(result)
    return results


def run_lab(lab: Lab, stage: Stage) -> LabResult:
    """Run one lab. An error is an outcome too: the promise was not shown to hold."""
    started = time.monotonic()
    error: str | None = None
    try:
        lab.run(stage)
    except Exception as failure:
        if follows_interrupt(failure):  # its cleanup failed: no reason to run the other labs
            raise KeyboardInterrupt from failure
        error = _told(lab, failure)
    finally:
        stage.clean_up()
    return LabResult(
        name=lab.name,
        promise=lab.promise,
        held=stage.held and error is None,
        seconds=time.monotonic() - started,
        facts=stage.facts,
        checks=tuple(stage.checks),
        error=error,
    )


def _told(lab: Lab, failure: Exception) -> str:
    if isinstance(failure, HeadraceError):
        return f"{failure.message} ({failure.hint})"
    # a defect in one lab must not hide the others' outcome
    logger.error("lab %s", lab.name, exc_info=failure)
    return f"{type(failure).__name__}: {failure}"


@contextlib.contextmanager
def _cluster(
    labs: Sequence[Lab], progress: Progress, given: Connection | None, local: LocalCluster | None
) -> Iterator[tuple[Connection, LocalCluster | None]]:
    if given is not None:
        for lab in labs:
            _refuse_impossible(lab, given, local)
        yield given, local
        return
    own = LocalCluster(
        max(lab.brokers for lab in labs),
        registry=any(lab.needs_registry for lab in labs),
        connect=any(lab.needs_connect for lab in labs),
        progress=progress,
    )
    with own:
        yield Connection(own.bootstrap, own.registry, source="a cluster of its own"), own


def _refuse_impossible(lab: Lab, given: Connection, local: LocalCluster | None) -> None:
    if lab.needs_faults and local is None:
        raise BadInput(
            f"lab {lab.name} stops and inspects brokers, which needs a local cluster",
            hint="run it without --profile and HEADRACE_BOOTSTRAP",
        )
    if local is not None and len(local.status().brokers) < lab.brokers:
        raise BadInput(
            f"lab {lab.name} needs {lab.brokers} brokers, cluster {local.name!r} has fewer",
            hint="run it without --profile, or start a larger cluster",
        )
    if lab.needs_registry and given.registry is None:
        raise BadInput(
            f"lab {lab.name} needs a schema registry, and none is known for {given.source}",
            hint="run it without --profile, or set HEADRACE_REGISTRY",
        )
    if lab.needs_connect and (local is None or local.connect is None):
        raise BadInput(
            f"lab {lab.name} needs a local cluster with a Connect worker",
            hint="run it without --profile, or start one with `headrace up --connect`",
        )
