"""Where a run's time went: the slowest tests, and the seconds of each kind beside its budget."""

from collections import Counter

import pytest

from support.kinds import BUDGETS

SLOWEST = 10


class TimeReport:
    """Adds up set-up, call and tear-down of every test, on whichever worker it ran."""

    def __init__(self, *, judge: bool) -> None:
        self._judge = judge  # budgets are those of the whole suite
        self._tests: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kind = dict(report.user_properties).get("kind", "other")
        self._tests[report.nodeid.partition("@")[0]] += report.duration
        self._kinds[str(kind)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if sum(self._tests.values()) < 1:
            return
        write = terminalreporter.write_line
        terminalreporter.section("where the time went")
        for name, seconds in self._tests.most_common(SLOWEST):
            write(f"{seconds:8.1f} s  {name}")
        for kind, seconds in self._kinds.most_common():
            budget = f" of {BUDGETS[kind]}" if self._judge and kind in BUDGETS else ""
            write(f"{seconds:8.1f}{budget} s  {kind}")
        for kind in over_budget(self._kinds) if self._judge else ():
            write(
                f"warning: {kind} tests took {self._kinds[kind]:.0f} s, more than their "
                f"{BUDGETS[kind]} s: prove something at a lower level, or mark it long",
                yellow=True,
            )


def over_budget(seconds: "Counter[str]") -> list[str]:
    """The kinds that took longer than they may, the worst first."""
    over = [kind for kind in BUDGETS if seconds[kind] > BUDGETS[kind]]
    return sorted(over, key=lambda kind: BUDGETS[kind] - seconds[kind])
