"""The judge of the fault tests sees what it is there to see."""

from support.handled import Line, judge_handled


def handled(*events):
    """Lines of (kind, member, key, number) at rising times."""
    return [
        Line(kind, member, key, number, f"t[0]@{number}", at)
        for at, (kind, member, key, number) in enumerate(events)
    ]


def once(member, key, number):
    return [("s", member, key, number), ("e", member, key, number)]


def test_an_orderly_ledger_has_no_faults():
    lines = handled(*once("a", "k", 1), *once("b", "l", 2), *once("a", "k", 3))
    found = judge_handled(lines, {1, 2, 3})
    assert (found.lost, found.repeated, found.swapped, found.overlapping) == (set(), 0, [], [])


def test_a_record_that_only_started_is_lost():
    assert judge_handled(handled(("s", "a", "k", 1)), {1}).lost == {1}


def test_a_repeated_suffix_counts_and_is_in_order():
    lines = handled(*once("a", "k", 1), *once("a", "k", 2), *once("b", "k", 1), *once("b", "k", 2))
    found = judge_handled(lines, {1, 2})
    assert found.repeated == 2
    assert found.swapped == []


def test_a_record_that_was_passed_over_is_swapped():
    lines = handled(*once("a", "k", 1), *once("a", "k", 3), *once("a", "k", 2))
    assert judge_handled(lines, {1, 2, 3}).swapped == [("k", 3, 2)]


def test_two_handlers_of_one_key_at_once_overlap():
    lines = handled(("s", "a", "k", 1), ("s", "b", "k", 2), ("e", "b", "k", 2), ("e", "a", "k", 1))
    assert judge_handled(lines, {1, 2}).overlapping == [("k", 1, 2)]


def test_a_killed_members_last_handler_ends_with_it():
    lines = handled(("s", "a", "k", 1), *once("b", "k", 1))
    assert judge_handled(lines, {1}).overlapping == []
