"""What a run warns of."""

from headrace.observe import Silent


class Warnings(Silent):
    """Keeps warnings, and is silent of the rest."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)
