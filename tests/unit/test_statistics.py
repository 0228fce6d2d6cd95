"""Latency samples stay small and honest; statistics add up over intervals."""

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.clients.statistics import LatencySample, WireStatistics


@given(st.lists(st.floats(0, 10), min_size=1, max_size=2000))
def test_a_sample_is_bounded_and_its_percentiles_lie_within_what_was_seen(values):
    sample = LatencySample(limit=64)
    for value in values:
        sample.add(value)
    assert len(sample._values) <= 64
    assert sample.maximum == round(max(values) * 1000, 3)
    for percent in (0, 50, 99, 100):
        assert round(min(values) * 1000, 3) <= sample.percentile(percent) <= sample.maximum


def test_percentiles_of_a_long_even_run_are_about_right():
    sample = LatencySample()
    for number in range(100_000):
        sample.add(number / 100_000)
    assert abs(sample.percentile(50) - 500) < 5
    assert abs(sample.percentile(99) - 990) < 5


def test_nothing_measured_is_none():
    assert LatencySample().percentile(50) is None
    assert LatencySample().maximum is None


def emission(batches, records, size):
    window = {"cnt": batches, "sum": records}
    return json.dumps(
        {
            "txmsg_bytes": size,
            "tx_bytes": size // 2,
            "topics": {"t": {"batchcnt": window}},
            "brokers": {"b": {"rtt": {"avg": 1500, "cnt": batches}}},
        }
    )


def test_batches_are_added_up_and_totals_replaced():
    wire = WireStatistics()
    wire.update(emission(2, 20, 1000))
    wire.update(emission(3, 40, 3000))
    assert (wire.batches, wire.batched_records, wire.bytes) == (5, 60, 3000)
    assert wire.request_latency_ms == 1.5


def test_waiting_for_the_next_statistics_ends_when_none_come():
    assert WireStatistics().wait_for_next(0.01) is False
