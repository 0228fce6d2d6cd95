"""When offsets are committed, and what that guarantees."""

from headrace.parallel.commit.strategies import (
    Auto,
    GapSafe,
    OffsetStrategy,
    PerBatch,
    PerRecord,
    strategy_named,
)

__all__ = ["Auto", "GapSafe", "OffsetStrategy", "PerBatch", "PerRecord", "strategy_named"]
