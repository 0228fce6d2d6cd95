"""Latency samples stay small and honest; statistics add up over intervals."""

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.clients.statistics import LatencySample, ProducerCounters, WireStatistics


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


def counters(acknowledged, size, batches, wire, taken_at):
    return ProducerCounters(
        sent=acknowledged,
        acknowledged=acknowledged,
        failed=0,
        pending=0,
        latency_p50_ms=None,
        latency_p95_ms=None,
        latency_p99_ms=None,
        latency_max_ms=None,
        bytes=size,
        batches=batches,
        records_per_batch=None,
        bytes_on_the_wire=wire,
        request_latency_ms=2.5,
        taken_at=taken_at,
    )


def test_rates_are_of_the_time_between_two_looks():
    rates = counters(1100, 260_000, 12, 140_000, 13.0).since(counters(100, 10_000, 2, 40_000, 11.0))
    assert rates.to_json() == {
        "seconds": 2.0,
        "records_per_second": 500.0,
        "bytes_per_second": 125_000.0,
        "bytes_per_batch": 25_000.0,
        "compression_rate": 0.4,
        "request_latency_ms": 2.5,
    }


def test_rates_of_no_time_and_no_records_are_unknown():
    now = counters(100, 10_000, 2, 40_000, 11.0)
    rates = now.since(now)
    assert (rates.records_per_second, rates.bytes_per_batch, rates.compression_rate) == (None,) * 3
