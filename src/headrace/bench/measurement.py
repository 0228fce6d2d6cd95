"""What a benchmark returns."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Measurement:
    """Rows as measured, and ratios between rows of the same run."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
