"""Tables read without Spark, and what must be in them, worked out without Spark."""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
from deltalake import DeltaTable


def table(lake: Path, name: str) -> list[dict[str, Any]]:
    """A Delta table's rows."""
    return DeltaTable(str(lake / name)).to_pyarrow_table().to_pylist()


def infos(lake: Path, name: str) -> list[dict[str, Any]]:
    """What pipelines said in the table's commits, the oldest first."""
    history = DeltaTable(str(lake / name)).history()
    return [orjson.loads(c["userMetadata"]) for c in reversed(history) if "userMetadata" in c]


@dataclass(frozen=True)
class Event:
    """A click, as the reference sees it."""

    row: str
    time: datetime
    kind: str
    category: str | None
    brand: str | None
    price: Decimal
    user: int
    session: str | None

    def to_json(self) -> bytes:
        return orjson.dumps(
            {
                "eventTime": round(self.time.timestamp() * 1000),
                "eventType": self.kind,
                "productId": 2**60 + 1,
                "categoryId": 2053013552326770905,
                "categoryCode": self.category,
                "brand": self.brand,
                "price": float(self.price),
                "userid": self.user,
                "userSession": self.session,
            }
        )


START = datetime(2019, 10, 1, tzinfo=UTC)


KINDS = ("view", "view", "view", "cart", "remove_from_cart", "purchase")
BRANDS = (None, "aqua", "shiseido")
CATEGORIES = (None, "appliances.kitchen", "appliances.sewing", "furniture")


def some_events(
    count: int, seed: int = 0, minutes: int = 600, start: datetime = START
) -> list[Event]:
    """Events in no order at all, of a few sessions with gaps in them."""
    dice = random.Random(seed)
    return [
        Event(
            row=f"{seed}:{number}",
            time=start + timedelta(seconds=dice.randrange(minutes * 60)),
            kind=dice.choice(KINDS),
            category=dice.choice(CATEGORIES),
            brand=dice.choice(BRANDS),
            price=Decimal(dice.randrange(100_000)) / 100,
            user=dice.randrange(10),
            session=dice.choice((None, *(f"s{number}" for number in range(12)))),
        )
        for number in range(count)
    ]


def hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def sessions(events: Iterable[Event], gap: timedelta = timedelta(minutes=30)) -> set[Any]:
    """Key, begin, end, events, views, carts, purchases, revenue."""
    by_key: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.time):
        if event.session is not None:
            by_key[event.session].append(event)
    found: set[Any] = set()
    for key, of_key in by_key.items():
        runs: list[list[Event]] = []
        for event in of_key:
            if not runs or event.time - runs[-1][-1].time > gap:
                runs.append([])
            runs[-1].append(event)
        found |= {(key, run[0].time, run[-1].time, len(run), *_kinds(run)) for run in runs}
    return found


def _kinds(events: Sequence[Event]) -> tuple[int, int, int, Decimal]:
    views, carts, bought = (
        [event for event in events if event.kind == kind] for kind in ("view", "cart", "purchase")
    )
    return len(views), len(carts), len(bought), sum((e.price for e in bought), Decimal(0))


def funnel(events: Iterable[Event]) -> set[Any]:
    """Category, hour, views, carts, purchases."""
    found: Mapping[Any, list[Event]] = _grouped(
        events, lambda e: ((e.category or "none").split(".")[0], hour(e.time))
    )
    return {(*key, *_kinds(of_key)[:3]) for key, of_key in found.items()}


def revenue(events: Iterable[Event]) -> set[Any]:
    """Brand, hour, purchases, revenue."""
    bought = [event for event in events if event.kind == "purchase"]
    found = _grouped(bought, lambda e: (e.brand or "none", hour(e.time)))
    return {(*key, *_kinds(of_key)[2:]) for key, of_key in found.items()}


def _grouped(events: Iterable[Event], key: Any) -> dict[Any, list[Event]]:
    found: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        found[key(event)].append(event)
    return found


def assert_tables(lake: Path, events: Sequence[Event]) -> None:
    """The clickstream's four tables hold these events, each once, and what follows from them."""
    rows = table(lake, "events")
    assert sorted(row["row_id"] for row in rows) == sorted(event.row for event in events)
    by_row = {event.row: event for event in events}
    for row in rows:
        event = by_row[row["row_id"]]
        assert (row["event_time"], row["event_type"]) == (event.time, event.kind)
        assert (row["price"], row["user_id"]) == (event.price, event.user)
        assert row["product_id"] == 2**60 + 1
    assert tuples(lake, "sessions") == sessions(events)
    assert tuples(lake, "funnel") == funnel(events)
    assert tuples(lake, "revenue") == revenue(events)


def tuples(lake: Path, name: str) -> set[Any]:
    rows = table(lake, name)
    found = {tuple(row.values()) for row in rows}
    assert len(found) == len(rows), f"{name} has equal rows"
    return found
