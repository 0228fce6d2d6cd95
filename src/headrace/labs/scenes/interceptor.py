"""An interceptor sees every record and every outcome; one that breaks is left out, harming nobody.

The interceptor here numbers each record in a header before it is sent, and times it until its
outcome: acknowledged, or refused by the broker. Beside it stand two that work for a while and
then raise, one before sending and one at the acknowledgement. Each is reported once and called no
more; the records, and the interceptor behind them, notice nothing.
"""

import contextlib
import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.clients import Acknowledged, Delivery, Interceptor, Outgoing, Producer
from headrace.errors import DeliveryFailed
from headrace.labs.stage import Stage
from headrace.model import Header, Record

RECORDS = 1_000
BREAKS_AT = 100
HEADER = "number"
SMALL_LIMIT = 1_000
TOO_LARGE = 5_000
CLOCK_MS = 1.0  # the interceptor and librdkafka read the clock one after the other


@dataclass(frozen=True)
class Outcome:
    """What became of a record, as the interceptor saw it."""

    milliseconds: float
    client_milliseconds: float | None
    written: Acknowledged | None
    reason: str | None


class Watch(Interceptor):
    """Numbers each record in a header, and times it from sending to its outcome."""

    def __init__(self) -> None:
        self.sent_at: list[float] = []
        self.outcomes: dict[int, Outcome] = {}

    def before_send(self, record: Outgoing) -> Outgoing:
        number = str(len(self.sent_at)).encode()
        self.sent_at.append(time.perf_counter())
        return record._replace(headers=[*record.headers, (HEADER, number)])

    def on_outcome(self, delivery: Delivery) -> None:
        number = number_of(delivery.record.headers)
        milliseconds = (time.perf_counter() - self.sent_at[number]) * 1000
        if delivery.failed:
            self.outcomes[number] = Outcome(milliseconds, None, None, delivery.reason)
        else:
            client = (delivery.latency or 0.0) * 1000
            self.outcomes[number] = Outcome(milliseconds, client, delivery.result(), None)


class BreaksBefore(Interceptor):
    """Raises in `before_send` from the hundredth record on."""

    def __init__(self) -> None:
        self.calls = 0

    def before_send(self, record: Outgoing) -> Outgoing:
        self.calls += 1
        if self.calls >= BREAKS_AT:
            raise RuntimeError("no more records, please")
        return record


class BreaksAfter(Interceptor):
    """Raises in `on_outcome` from the hundredth outcome on."""

    def __init__(self) -> None:
        self.calls = 0

    def on_outcome(self, delivery: Delivery) -> None:
        self.calls += 1
        if self.calls >= BREAKS_AT:
            raise RuntimeError("no more outcomes, please")


class Reports(logging.Handler):
    """Keeps the lines that are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def run(stage: Stage) -> None:
    topic = stage.topic("intercepted")
    watch, before, after = Watch(), BreaksBefore(), BreaksAfter()
    stage.say(f"sending {RECORDS:,} records past three interceptors, two of which break")
    with (
        reports_of("headrace.interceptors") as reports,
        # The broken ones stand first: whoever comes behind them would suffer.
        Producer(stage.connection, interceptors=[before, after, watch]) as producer,
    ):
        for number in range(RECORDS):
            producer.send(topic, str(number))
    records = stage.records(topic)

    judge_watch(stage, watch, records)
    judge_broken(stage, before, after, reports.lines)
    judge_refusal(stage)


@contextlib.contextmanager
def reports_of(name: str) -> Iterator[Reports]:
    """What a logger says meanwhile; kept off the screen, where tracebacks look like a defect."""
    logger, reports = logging.getLogger(name), Reports()
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(reports)
    try:
        yield reports
    finally:
        logger.removeHandler(reports)
        logger.propagate = propagated


def judge_watch(stage: Stage, watch: Watch, records: Sequence[Record]) -> None:
    outcomes = [watch.outcomes[number] for number in sorted(watch.outcomes)]
    times = sorted(outcome.milliseconds for outcome in outcomes)
    seen = [(o.written.partition, o.written.offset) for o in outcomes if o.written]
    stage.fact("records stored", len(records))
    stage.fact("seen before sending", len(watch.sent_at))
    stage.fact("seen acknowledged", len(seen))
    if times:
        shown = [times[len(times) // 2], times[-1]]
        stage.fact("ms to the outcome, median and longest", "{:.1f}, {:.1f}".format(*shown))
    last = {name: (value or b"").decode() for name, value in records[-1].headers}
    stage.fact("headers of the last record stored", str(last))

    stage.check("all records are stored, in order", [r.value for r in records] == expected_values())
    stage.check("every record was seen before sending", len(watch.sent_at) == len(records))
    stage.check(
        "every acknowledgement was seen, with the place where the record is stored",
        seen == [(r.partition, r.offset) for r in records],
    )
    stage.check(
        "the header that was added is in every stored record",
        [r.headers for r in records] == [((HEADER, value),) for value in expected_values()],
    )
    stage.check(
        "each measured time covers what the client itself measured",
        len(outcomes) == RECORDS
        and all(
            o.client_milliseconds and o.milliseconds + CLOCK_MS >= o.client_milliseconds
            for o in outcomes
        ),
    )


def judge_broken(
    stage: Stage, before: BreaksBefore, after: BreaksAfter, lines: Sequence[str]
) -> None:
    table = []
    for broken in (before, after):
        name = type(broken).__name__
        reported = [line for line in lines if name in line]
        table.append(
            {
                "broken interceptor": name,
                "called": broken.calls,
                "reported": len(reported),
                "report": reported[0] if reported else None,
            }
        )
    stage.fact("the broken ones", table)
    stage.check(
        "each broken interceptor is reported once",
        len(lines) == 2 and all(row["reported"] == 1 for row in table),
    )
    stage.check(
        f"each is left out after the call that raised, its {BREAKS_AT}th",
        before.calls == after.calls == BREAKS_AT,
    )


def judge_refusal(stage: Stage) -> None:
    """A record that the broker refuses reaches the interceptor as failed; its neighbours do not."""
    topic = stage.topic("small_records", configs={"max.message.bytes": str(SMALL_LIMIT)})
    values = [b"before", random.Random(7).randbytes(TOO_LARGE), b"after"]
    watch = Watch()
    stage.say(f"sending a record of {TOO_LARGE:,} bytes to a topic that takes {SMALL_LIMIT:,}")
    with (
        contextlib.suppress(DeliveryFailed),  # leaving the producer tells of the failure again
        Producer(stage.connection, interceptors=[watch]) as producer,
    ):
        for value in values:
            # One at a time: a broker refuses a whole batch, neighbours included.
            producer.send(topic, value)
            producer.flush()
    stored = {number_of(r.headers): r.offset for r in stage.records(topic)}

    table = [
        {
            "record": number,
            "bytes": len(values[number]),
            "ms": round(outcome.milliseconds, 1),
            "offset": outcome.written.offset if outcome.written else None,
            "failed with": outcome.reason,
        }
        for number, outcome in sorted(watch.outcomes.items())
    ]
    stage.fact("a record that the broker refuses", table)
    stage.check("the refused record is not stored, its neighbours are", set(stored) == {0, 2})
    stage.check(
        "the interceptor saw it as failed with a reason, and its neighbours as written",
        [row["offset"] for row in table] == [stored.get(0), None, stored.get(2)]
        and [bool(row["failed with"]) for row in table] == [False, True, False],
    )


def expected_values() -> list[bytes]:
    return [str(number).encode() for number in range(RECORDS)]


def number_of(headers: Sequence[Header]) -> int:
    return int(dict(headers)[HEADER] or b"-1")
