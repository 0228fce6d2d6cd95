"""Progress of long operations, told to whoever shows it.

Library code calls a `Progress`; the command line draws it, tests and services stay silent.
"""

from typing import Literal, Protocol

Unit = Literal["bytes", "rows", "records"]


class Progress(Protocol):
    """What an operation may tell while it runs. All calls may come from any thread."""

    def step(self, text: str) -> None:
        """A new step begins: one line, present tense."""

    def begin(self, what: str, total: int, unit: Unit = "bytes") -> None:
        """A countable piece of work begins: `total` bytes, rows or records."""

    def advance(self, amount: int) -> None:
        """So many more are done."""

    def end(self) -> None:
        """The countable piece of work is over."""

    def warn(self, text: str) -> None:
        """Something the user should know, though the work goes on."""


class Silent:
    """Tells nobody."""

    def step(self, text: str) -> None:
        pass

    def begin(self, what: str, total: int, unit: Unit = "bytes") -> None:
        pass

    def advance(self, amount: int) -> None:
        pass

    def end(self) -> None:
        pass

    def warn(self, text: str) -> None:
        pass
