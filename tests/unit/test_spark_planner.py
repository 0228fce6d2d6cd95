"""A query whose planner came too late is run again; any other failure is told."""

import pytest

from headrace.spark.running import until_planned


def failing(*messages):
    left = list(messages)

    def run():
        if left:
            raise RuntimeError(left.pop(0))

    return run, left


def test_a_planner_that_came_too_late_is_tried_again():
    run, left = failing(*["terminated: Python worker failed to connect back."] * 7)
    until_planned(run)
    assert not left


def test_other_failures_are_told():
    run, left = failing("Python worker failed to connect back", "the table is gone", "never")
    with pytest.raises(RuntimeError, match="the table is gone"):
        until_planned(run)
    assert left == ["never"]
