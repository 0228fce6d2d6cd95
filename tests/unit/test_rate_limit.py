"""A rate is kept in the long run and within each tenth of a second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.parallel.engine.rate import RateLimit
from support.examples import examples


def test_at_first_a_tenth_of_a_seconds_worth_may_start_at_once():
    limit = RateLimit(100, now=5.0)
    assert limit.allowed(50, now=5.0) == 10
    assert limit.allowed(3, now=5.0) == 3


def test_what_was_not_spent_is_not_saved_up():
    limit = RateLimit(100, now=0.0)
    assert limit.allowed(1000, now=3600.0) == 10


def test_what_is_spent_comes_back_at_the_rate():
    limit = RateLimit(100, now=0.0)
    limit.spend(10)
    assert [limit.allowed(50, now=now) for now in (0.0, 0.009, 0.01, 0.055)] == [0, 0, 1, 5]


def test_it_says_when_the_next_may_start():
    limit = RateLimit(4, now=0.0)
    assert limit.ready_at(0.0) == 0.0
    limit.spend(1)
    assert limit.ready_at(0.0) == pytest.approx(0.25)
    assert limit.ready_at(0.1) == pytest.approx(0.25)
    assert limit.allowed(1, now=0.25) == 1
    assert limit.ready_at(9.0) == 9.0


def test_less_than_one_a_second_is_a_rate_too():
    limit = RateLimit(0.1, now=0.0)
    assert limit.allowed(5, now=0.0) == 1
    limit.spend(1)
    assert limit.ready_at(0.0) == pytest.approx(10.0)
    assert [limit.allowed(5, now=now) for now in (9.9, 10.0)] == [0, 1]


def test_what_was_spent_beyond_the_bucket_is_paid_back_first():
    limit = RateLimit(100, now=0.0)
    limit.spend(60)  # a bundle of sixty
    assert limit.allowed(1, now=0.4) <= 0
    assert limit.ready_at(0.4) == pytest.approx(0.51)
    assert limit.allowed(9, now=0.51) == 1


def test_a_clock_that_stands_still_or_goes_back_gives_nothing():
    limit = RateLimit(10, now=5.0)
    limit.spend(1)
    assert limit.allowed(5, now=4.0) == 0
    assert limit.allowed(5, now=5.05) == 0
    assert limit.allowed(5, now=5.1) == 1


@given(
    rate=st.floats(0.5, 10_000),
    steps=st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 1000)), max_size=60),
)
@examples(200)
def test_whoever_asks_however_often_the_rate_is_never_exceeded(rate, steps):
    limit = RateLimit(rate, now=0.0)
    now, started = 0.0, 0
    for wait, wanted in steps:
        now += wait
        count = limit.allowed(wanted, now)
        assert 0 <= count <= wanted
        limit.spend(count)
        started += count
        assert started <= max(1.0, rate / 10) + rate * now + 1e-3


@given(rate=st.floats(0.5, 10_000), polls=st.integers(1, 50))
@examples(100)
def test_who_comes_when_told_to_is_let_in(rate, polls):
    limit = RateLimit(rate, now=0.0)
    now = 0.0
    for _ in range(polls):
        limit.spend(limit.allowed(1, now))
        now = limit.ready_at(now)
        assert limit.allowed(1, now) == 1
