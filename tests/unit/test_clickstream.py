"""The made-up clickstream: the same for a seed, like the real one, and bad exactly where it says.

The measured figures are of 5,019 events of the real file, which no test needs.
"""

import hashlib
import re
import tracemalloc
from collections import Counter, defaultdict
from datetime import datetime
from itertools import islice, pairwise
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.services.clickstream import HEADER, KINDS, OVERSIZED_BYTES, rows

COLUMNS = HEADER.decode().rstrip("\n").split(",")
GOOD = re.compile(
    rb"2019-10-\d\d \d\d:\d\d:\d\d UTC,(view|cart|remove_from_cart|purchase),\d{7,8},205301\d{13},"
    rb"[a-z_.]*,[a-z-]*,\d+\.\d\d,5\d{8},"
    rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n"
)
FEW = st.integers(0, 300)
SEEDS = st.integers(-(2**63), 2**63 - 1)


def parse(row: bytes) -> dict[str, str]:
    return dict(zip(COLUMNS, row.decode().rstrip("\n").split(","), strict=True))


def moment(event: dict[str, str]) -> datetime:
    return datetime.strptime(event["event_time"], "%Y-%m-%d %H:%M:%S UTC")


def joined(count: int, seed: int = 0, bad: float = 0.0) -> bytes:
    return b"".join(row for row, _ in rows(count, seed, bad))


def share_of_first(tenth: float, names: list[str]) -> float:
    """What part of all the most frequent names make up, so many of them."""
    counts = sorted(Counter(names).values(), reverse=True)
    return sum(counts[: max(1, int(len(counts) * tenth))]) / len(names)


@pytest.fixture(scope="module")
def events():
    """About ten times as many as were measured, so that chance plays a small part."""
    return [parse(row) for row, _ in rows(50_000, 1)]


@pytest.fixture(scope="module")
def sessions(events):
    found = defaultdict(list)
    for event in events:
        found[event["user_session"]].append(event)
    return list(found.values())


# --- the same for a seed ---


def test_the_bytes_of_a_seed_never_change():
    digest = hashlib.sha256(joined(5_000, 7, 0.01)).hexdigest()
    assert digest == "eb1b57d86aa8d60a4a11e194d4ade04aea5a9b10ebc2c7b69d610dba78d76b41"


@given(count=FEW, seed=SEEDS)
@settings(max_examples=30)
def test_every_row_is_good_and_in_order_of_time(count, seed):
    made = list(rows(count, seed))
    assert len(made) == count
    assert all(GOOD.fullmatch(row) and kind is None for row, kind in made)
    times = [row[:19] for row, _ in made]
    assert times == sorted(times)


@given(count=FEW, more=FEW, seed=SEEDS)
@settings(max_examples=30)
def test_a_longer_file_begins_with_the_shorter_one(count, more, seed):
    assert joined(count + more, seed).startswith(joined(count, seed))


def test_seeds_differ_in_everything_but_the_store():
    assert joined(100, 1) != joined(100, -1)
    one, other = ([parse(row) for row, _ in rows(5_000, seed)] for seed in (1, 2))
    sold = defaultdict(set)
    for event in one + other:
        sold[event["product_id"]].add(tuple(event[name] for name in COLUMNS[3:7]))
    assert {len(facts) for facts in sold.values()} == {1}
    assert not {e["user_session"] for e in one} & {e["user_session"] for e in other}


# --- like the real one ---


def test_the_mix_of_events_is_near_the_measured_one(events):
    mix = {kind: n / len(events) for kind, n in Counter(e["event_type"] for e in events).items()}
    assert mix["view"] == pytest.approx(0.979, abs=0.01)
    assert mix["cart"] == pytest.approx(0.010, abs=0.003)
    assert mix["purchase"] == pytest.approx(0.0108, abs=0.003)
    assert mix["remove_from_cart"] == pytest.approx(0.001, abs=0.0007)  # none in the real piece


def test_what_is_empty_is_near_the_measured_share(events):
    for name, measured in {"category_code": 0.314, "brand": 0.126}.items():
        assert sum(not e[name] for e in events) / len(events) == pytest.approx(measured, abs=0.04)


def test_prices_are_near_the_measured_ones(events):
    prices = sorted(float(event["price"]) for event in events)
    for part, measured in {0.05: 18.5, 0.25: 64.8, 0.5: 166.0, 0.75: 385.8, 0.95: 1082.0}.items():
        assert prices[int(len(prices) * part)] == pytest.approx(measured, rel=0.35)
    assert 0 < prices.count(0.0) / len(prices) < 0.005
    assert prices[-1] < 5_000


def test_a_category_has_one_code_and_an_id_that_no_float_holds(events):
    codes = defaultdict(set)
    for event in events:
        codes[event["category_id"]].add(event["category_code"])
    assert {len(each) for each in codes.values()} == {1}
    assert len(codes) == 304  # as many as were measured
    assert any(int(float(number)) != int(number) for number in codes)


def test_a_few_users_and_products_are_frequent_and_most_are_rare(events):
    start = events[:5_019]  # shares depend on how many events are looked at
    assert share_of_first(0.1, [e["product_id"] for e in start]) == pytest.approx(0.40, abs=0.08)
    assert share_of_first(0.1, [e["user_id"] for e in start]) == pytest.approx(0.336, abs=0.06)
    once = [n for n in Counter(e["product_id"] for e in start).values() if n == 1]
    assert len(once) / len({e["product_id"] for e in start}) == pytest.approx(0.61, abs=0.1)


def test_sessions_are_as_long_as_the_measured_ones(sessions):
    assert len({len({e["user_id"] for e in session}) for session in sessions}) == 1
    lengths = [len(session) for session in sessions]
    assert sum(lengths) / len(lengths) == pytest.approx(2.63, abs=0.3)
    assert lengths.count(1) / len(lengths) == pytest.approx(0.47, abs=0.05)
    users = {session[0]["user_id"] for session in sessions}
    assert 0.8 < len(users) / len(sessions) < 0.95  # 0.92 measured, of fewer sessions


def test_events_of_a_session_are_close_together(sessions):
    steps = [pair for session in sessions for pair in pairwise(session)]
    gaps = [(moment(b) - moment(a)).total_seconds() for a, b in steps]
    assert median(gaps) == pytest.approx(32, abs=5)
    assert max(gaps) < 15 * 60
    same = sum(a["product_id"] == b["product_id"] for a, b in steps) / len(steps)
    assert same == pytest.approx(0.36, abs=0.05)


def test_a_purchase_follows_a_view_and_mostly_a_cart_of_the_product(sessions):
    bought, carted = 0, 0
    for session in sessions:
        seen = set()
        for event in session:
            if event["event_type"] != "view":
                assert ("view", event["product_id"]) in seen
            if event["event_type"] == "purchase":
                bought += 1
                carted += ("cart", event["product_id"]) in seen
            if event["event_type"] == "remove_from_cart":
                assert ("cart", event["product_id"]) in seen
            seen.add((event["event_type"], event["product_id"]))
    assert bought > 0
    assert carted / bought == pytest.approx(0.6, abs=0.1)


def test_several_events_a_second(events):
    seconds = Counter(event["event_time"] for event in events)
    assert sum(seconds.values()) / len(seconds) == pytest.approx(6.5, abs=1)


def test_only_sessions_that_go_on_are_held():
    made = rows(60_000, 1)
    for _ in islice(made, 10_000):
        pass
    tracemalloc.start()
    for _ in made:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000  # 50,000 rows are 6,700,000 bytes


# --- bad where it says ---


def is_good(row: bytes) -> bool:
    return len(row) < 1_000 and GOOD.fullmatch(row) is not None


@given(count=FEW, seed=SEEDS, bad=st.floats(0, 1))
@settings(max_examples=30)
def test_exactly_the_rows_that_are_told_are_bad(count, seed, bad):
    made = list(rows(count, seed, bad))
    kinds = [kind for _, kind in made if kind is not None]
    assert len(made) == count
    assert len(kinds) == round(count * bad)
    assert all(is_good(row) == (kind is None) for row, kind in made)
    good = [row for row, _ in rows(count, seed)]
    assert all(row == good[i] for i, (row, kind) in enumerate(made) if kind is None)
    assert set(kinds) <= set(KINDS)
    assert kinds.count("oversized") <= 3
    assert kinds.count("truncated") == (1 if kinds else 0)


def test_every_kind_comes_in_turn_and_is_what_its_name_says():
    made = {kind: row for row, kind in rows(1_000, 3, 0.009)}
    del made[None]
    assert tuple(made) == KINDS
    commas = {kind: row.count(b",") for kind, row in made.items()}
    assert commas.pop("too_few_columns") < 8
    assert commas.pop("too_many_columns") == 9
    assert commas.pop("truncated") < 8
    assert set(commas.values()) == {8}
    assert b",12x4," in made["bad_product_id"]
    assert b",abc," in made["bad_price"]
    with pytest.raises(ValueError, match="does not match"):
        moment({"event_time": made["bad_time"].decode().split(",")[0]})
    with pytest.raises(UnicodeDecodeError):
        made["invalid_utf8"].decode()
    assert len(made["oversized"]) > OVERSIZED_BYTES
    assert b'"two\nlines"' in made["quoted_newline"]
    assert [kind for kind, row in made.items() if not row.endswith(b"\n")] == ["truncated"]


def test_bad_rows_are_spread_over_the_file_and_kinds_are_even():
    kinds = [kind for _, kind in rows(20_000, 0, 0.1)]
    for tenth in range(10):
        part = kinds[tenth * 2_000 : (tenth + 1) * 2_000]
        assert len(part) - part.count(None) in range(199, 202)
    found = Counter(kind for kind in kinds if kind is not None)
    assert (found.pop("truncated"), found.pop("oversized")) == (1, 3)
    assert max(found.values()) - min(found.values()) < 10
    places = [number for number, kind in enumerate(kinds) if kind == "oversized"]
    assert places[0] < 1_000
    assert 9_000 < places[1] < 11_000
    assert places[2] > 19_000


@pytest.mark.parametrize(
    ("count", "seed", "bad"),
    [(-1, 0, 0), (10**13, 0, 0), (1, 0, -0.1), (1, 0, 1.1), (1, 0, float("nan")), (1, 2**63, 0)],
)
def test_what_cannot_be_made_is_refused_before_the_first_row(count, seed, bad):
    with pytest.raises(BadInput) as caught:
        rows(count, seed, bad)
    assert caught.value.hint
