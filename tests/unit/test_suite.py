"""How the suite is run: slices reach every long test, and kinds over their budget are named."""

from collections import Counter

import pytest

from support.kinds import BUDGETS
from support.slices import MOST_SECONDS, MOST_TESTS, choose
from support.time_report import over_budget

LONG = {f"test_{number}": seconds for number, seconds in enumerate([10.0, 40.0, 60.0, 300.0] * 5)}


@pytest.mark.parametrize("seed", ["a", "b", "c", "d"])
def test_a_slice_is_small_and_the_same_for_the_same_seed(seed):
    chosen = choose(LONG, seed)
    assert chosen == choose(dict(reversed(LONG.items())), seed)
    assert 1 <= len(chosen) <= MOST_TESTS
    assert len(chosen) == 1 or sum(LONG[name] for name in chosen) <= MOST_SECONDS


def test_every_long_test_has_its_turn():
    seen = Counter(name for seed in range(200) for name in choose(LONG, str(seed)))
    assert seen.keys() == LONG.keys()


def test_a_kind_that_takes_longer_than_its_budget_is_named_the_worst_first():
    assert over_budget(Counter(BUDGETS)) == []
    over = Counter(BUDGETS) + Counter(docs=1, kafka=20)
    assert over_budget(over) == ["kafka", "docs"]


def test_budgets_fit_into_ten_minutes_of_two_workers():
    assert sum(BUDGETS.values()) <= 2 * 600
