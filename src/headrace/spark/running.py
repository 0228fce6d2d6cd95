"""Spark's work while it runs: watched, and its failures told in one line."""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace import errors
from headrace.errors import HeadraceError, OperationFailed
from headrace.model import Deadline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.spark.ingest.source import ChunkToRead

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_PLAN = 180.0
_TOO_LATE = "Python worker failed to connect back"
_RAISED = re.compile(r"headrace\.errors\.(\w+): ([^\n]+)")
_INTERRUPTED = re.compile(
    r"java\.(lang\.Interrupted|io\.InterruptedIO|nio\.channels\.ClosedByInterrupt)Exception"
)
_MOST_CHARACTERS = 200


@contextlib.contextmanager
def watching(look: Callable[[], None]) -> Iterator[None]:
    """Look again and again, on another thread, while something is done."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SECONDS_BETWEEN_LOOKS):
            with contextlib.suppress(HeadraceError):  # the work itself will say what is wrong
                look()

    thread = threading.Thread(target=watch, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class BatchFailed(Exception):
    """What Spark is told of a micro-batch that failed."""


class EachBatch:
    """What Spark calls for each micro-batch. If it fails, `failure` is what happened: Spark is told
    in a line, and would make a long tale of it."""

    def __init__(self, run: "Callable[[DataFrame, int], None]") -> None:
        self._run = run
        self.failure: Exception | None = None

    def __call__(self, rows: "DataFrame", batch: int) -> None:
        try:
            self._run(rows, batch)
        except Exception as failure:
            self.failure = failure
            raise BatchFailed(in_a_line(failure)) from None


def in_a_line(failure: Exception) -> str:
    """A failure as Spark bears it: with a text of many lines it dies.

    Whether a batch was interrupted, because somebody stops the query, Spark finds out by a pattern
    that needs a piece of its stack for every character between these two names.

    >>> in_a_line(ValueError("first\\nsecond"))
    'ValueError: first'
    >>> in_a_line(OSError("An error\\n ... java.lang.InterruptedException\\n ..."))
    'py4j.protocol.Py4JJavaError: An error occurred while calling java.lang.InterruptedException'
    """
    text = str(failure)
    if interrupted := _INTERRUPTED.search(text):
        return f"py4j.protocol.Py4JJavaError: An error occurred while calling {interrupted[0]}"
    return f"{type(failure).__name__}: {text.strip().partition(chr(10))[0][:_MOST_CHARACTERS]}"


def until_planned(run: Callable[[], None]) -> None:
    """Run a query, and again if its planner came too late.

    Spark gives the process that plans a source written in Python ten seconds to start, which a busy
    machine may not manage. The query has not begun then.
    """
    deadline = Deadline(SECONDS_TO_PLAN)
    while True:
        try:
            return run()
        except Exception as failure:
            if deadline.expired or _TOO_LATE not in str(failure):
                raise


def translate_failure(failure: Exception, chunks: "Sequence[ChunkToRead]" = ()) -> HeadraceError:
    """What a task raised, out of Spark's long tale of it; pieces are named as parts of files."""
    if isinstance(failure, HeadraceError):
        return failure
    raised = _RAISED.findall(str(failure))
    if raised:
        name, message = raised[-1]
        for chunk in chunks:
            place = f"{chunk.path} (bytes {chunk.start:,} to {chunk.end:,}, read as {chunk.format})"
            message = message.replace(f"piece {chunk.piece}", place)
        return getattr(errors, name, OperationFailed)(message, hint="mend it and run this again")
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    first = next((line for line in lines if "An error occurred while calling" not in line), "?")
    return OperationFailed(f"Spark failed: {first}", hint="run again with --debug for all of it")
