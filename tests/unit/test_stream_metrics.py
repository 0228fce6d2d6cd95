"""What a running pipeline shows: figures for Prometheus, and a table of its last batches."""

import io
import socket
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from headrace.cli.batches import table
from headrace.cli.main import run
from headrace.errors import BadInput
from headrace.services.stream_metrics import StreamMetrics
from headrace.spark.pipelines.accounts import Counts
from headrace.spark.pipelines.batch import BatchDone
from support.http import get

ENDED = datetime(2026, 1, 1, tzinfo=UTC)
FIRST = BatchDone(
    0,
    Counts(1000, 990, 4, 6),
    2.0,
    ENDED - timedelta(seconds=90),
    ENDED,
    {"events": 1_400_000, "sessions": 200_000},
)
SECOND = BatchDone(1, Counts(10, 10), 0.5, None, ENDED)


def test_a_port_that_there_is_not_is_refused(capfd):
    assert run(["stream", "clickstream", "--lake", "x", "--once", "--metrics", "99999"]) == 2
    assert "65535" in capfd.readouterr().err


def test_batches_are_added_up_for_prometheus():
    metrics = StreamMetrics("clicks")
    with metrics.served(0) as port:
        metrics.tell(FIRST)
        metrics.tell(SECOND)
        lines = get(f"http://127.0.0.1:{port}/metrics").splitlines()
    for line in (
        'headrace_stream_batches_total{pipeline="clicks"} 2.0',
        'headrace_stream_batch_seconds_total{pipeline="clicks"} 2.5',
        'headrace_stream_records_total{pipeline="clicks"} 1010.0',
        'headrace_stream_rows_total{pipeline="clicks"} 1000.0',
        'headrace_stream_dead_letters_total{pipeline="clicks"} 4.0',
        'headrace_stream_duplicates_total{pipeline="clicks"} 6.0',
        'headrace_stream_records_per_second{pipeline="clicks"} 20.0',
        'headrace_stream_delay_seconds{pipeline="clicks"} 90.0',
        'headrace_stream_table_bytes{pipeline="clicks",table="events"} 1.4e+06',
        'headrace_stream_table_bytes{pipeline="clicks",table="sessions"} 200000.0',
    ):
        assert line in lines


def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=str(port)), StreamMetrics("clicks").served(port):
            pass


def test_the_table_has_a_line_for_each_batch():
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table([FIRST, SECOND]))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["0", "1,000", "990", "4", "6", "2.0", "s", "500", "1.5", "min", "1.6", "MB"] in lines
    assert ["1", "10", "10", "0", "0", "0.5", "s", "20"] in lines


def test_batches_of_millions_fit_a_narrow_terminal():
    large = BatchDone(
        *(99_999, Counts(1_000_000, 990_000, 10_000, 20_000), 59.9),
        *(ENDED - timedelta(days=3), ENDED, {"events": 123_400_000_000}),
    )
    console = Console(width=80, file=io.StringIO())
    console.print(table([large]))
    (line,) = [line for line in console.file.getvalue().splitlines() if "99,999" in line]
    wanted = "99,999 1,000,000 990,000 10,000 20,000 59.9 s 16,694 3.0 d 123.4 GB"
    assert line.split() == wanted.split()
