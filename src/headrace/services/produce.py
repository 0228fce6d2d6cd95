"""Records from lines of text or JSON into a topic."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.clients import Connection, Producer
from headrace.clients.deliveries import Outgoing
from headrace.errors import BadInput, HeadraceError
from headrace.services.record_lines import from_line


@dataclass(frozen=True)
class ProduceResult:
    """What became of the lines: `failed` were refused or not acknowledged, `error` says why."""

    sent: int
    failed: int
    error: str | None


def parse_text(line: bytes, topic: str, separator: bytes | None) -> Outgoing:
    """A line of text is a value, or a key and a value with a separator between them."""
    if separator is None:
        return Outgoing(topic, line)
    key, found, value = line.partition(separator)
    if not found:
        shown = separator.decode("utf-8", "replace")
        raise BadInput(f"it has no {shown!r}", hint="give each line a key, or no --key-separator")
    return Outgoing(topic, value, key)


def parser(
    topic: str, kind: str, separator: str | None, keep_partition: bool
) -> Callable[[bytes], Outgoing]:
    """How a line becomes a record, by the options of `produce`."""
    if kind == "ndjson":
        return lambda line: from_line(line, topic, keep_partition=keep_partition)
    encoded = separator.encode() if separator else None
    return lambda line: parse_text(line, topic, encoded)


def produce_lines(
    connection: Connection, lines: Iterable[bytes], parse: Callable[[bytes], Outgoing]
) -> ProduceResult:
    """Send every line and wait for all acknowledgements.

    A line that cannot be read or sent stops the run; those before it are sent all the same, and
    the error tells the line's number, so that the rest can be sent after it was mended.
    """
    producer = Producer(connection)
    stopped: HeadraceError | None = None
    for number, line in enumerate(lines, 1):
        try:
            producer.send(*parse(line.rstrip(b"\n").removesuffix(b"\r")))
        except HeadraceError as error:
            facts = error.facts | {"line": number}
            stopped = type(error)(f"line {number}: {error.message}", hint=error.hint, **facts)
            break
    pending = producer.flush()
    if stopped is not None:
        raise type(stopped)(
            f"{stopped.message} ({producer.acknowledged} records before it were sent)",
            hint=stopped.hint,
            **stopped.facts,
        )
    failed = producer.failed + pending
    return ProduceResult(producer.acknowledged, failed, _first_error(producer, pending))


def _first_error(producer: Producer, pending: int) -> str | None:
    for delivery in producer.failures:
        return delivery.reason
    return f"{pending} records had no acknowledgement in time" if pending else None
