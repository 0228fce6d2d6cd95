"""What a running pipeline's batches did: a table that keeps itself up to date, or lines."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.cli.output import grid
from headrace.cli.progress import TerminalProgress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.spark.pipelines.batch import BatchDone

SHOWN = 10
# They fit a terminal of 80 characters, with millions of records in a batch.
_HEADS = (
    *(">batch", ">records", ">rows", ">dead", ">twice"),
    *(">took", ">per s", ">delay", ">state"),
)


def telling(progress: TerminalProgress) -> "Callable[[BatchDone], None]":
    """What tells of each batch in a line."""

    def tell(batch: "BatchDone") -> None:
        counts = batch.counts
        progress.step(
            f"batch {batch.batch}: {counts.rows_in:,} records, {counts.rows_out:,} rows, "
            f"{counts.rows_dead:,} dead, {counts.duplicates:,} duplicates "
            f"in {batch.seconds:.1f} s"
        )

    return tell


@contextlib.contextmanager
def live(progress: TerminalProgress) -> "Iterator[Callable[[BatchDone], None]]":
    """What shows the last batches on a terminal, as long as the pipeline runs; elsewhere lines."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield telling(progress)
        return
    last: deque[BatchDone] = deque(maxlen=SHOWN)
    with Live(console=console, auto_refresh=False) as shown:

        def tell(batch: "BatchDone") -> None:
            last.append(batch)
            shown.update(table(last), refresh=True)

        yield tell


def table(batches: "Sequence[BatchDone] | deque[BatchDone]") -> "RenderableType":
    """A line for each batch. `twice` are duplicates, the delay is how old its newest record was
    when it was done, and the state is the size of the tables."""
    rows = [
        (
            *(batch.batch, batch.counts.rows_in, batch.counts.rows_out, batch.counts.rows_dead),
            *(batch.counts.duplicates, _span(batch.seconds), f"{batch.rate:,.0f}"),
            "" if batch.delay is None else _span(batch.delay),
            "" if batch.state is None else _bytes(batch.state),
        )
        for batch in batches
    ]
    return grid(_HEADS, rows, tight=True)


def _span(seconds: float) -> str:
    """A span of time, short.

    >>> _span(0.25), _span(75), _span(7200)
    ('0.2 s', '1.2 min', '2.0 h')
    """
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _bytes(size: int) -> str:
    """A size, short.

    >>> _bytes(34_000), _bytes(1_234_567_890)
    ('34.0 kB', '1.2 GB')
    """
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size / 1000:.1f} kB"
