"""A query in SQL follows a topic: its answer changes as records come, and ends at the true count.

A till sends sales, a part at a time. Meanwhile a query sums them up by window of time and kind of
goods, on Spark, and gives its whole result after each batch. A second query only filters: it gives
each row once. At the end both are what Python counts of the same sales, and so is the first query
when it is asked once; a statement that would change something is refused.
"""

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

from headrace.clients import Producer
from headrace.errors import BadInput
from headrace.labs.stage import Stage

if TYPE_CHECKING:
    from headrace.spark.sql.running import Update

PARTITIONS = 3
PARTS, SALES_PER_PART = 4, 500
BEGIN = datetime(2024, 5, 1, 8, tzinfo=UTC)
WINDOW = timedelta(minutes=10)
DAY = timedelta(hours=2)
KINDS = ("bread", "cheese", "wine")
DEAR = 4500  # cents
SECONDS = 180

Sale = tuple[datetime, str, int]  # when, what, cents
Sums = dict[tuple[str, str], tuple[int, Decimal]]


def run(stage: Stage) -> None:
    # Kept for ever: retention goes by the records' own time, and this day is long past.
    topic = stage.topic("shop.sales", PARTITIONS, configs={"retention.ms": "-1"})
    grouped = f"""
        SELECT window.start AS at, json:kind::string AS kind, count(*) AS sales,
            sum(json:cents::int / 100BD)::decimal(18,2) AS amount
        FROM `{topic}` GROUP BY window(timestamp, '10 minutes'), 2
    """
    dear = f"SELECT json:number::int FROM `{topic}` WHERE json:cents::int >= {DEAR}"
    dice = random.Random(7)
    parts = [make_sales(dice) for _ in range(PARTS)]
    sales = [sale for part in parts for sale in part]
    wanted_dear = [number for number, (_, _, cents) in enumerate(sales) if cents >= DEAR]
    with following(stage, grouped) as answers, following(stage, dear) as rows:
        for number, part in enumerate(parts, 1):
            stage.say(f"part {number}: {len(part)} sales")
            send(stage, topic, part, (number - 1) * SALES_PER_PART)
            until_counted(stage, answers, number * SALES_PER_PART)
        stage.wait_until(
            lambda: len(first_cells(rows)) >= len(wanted_dear), "all the dear ones", SECONDS
        )
    stage.fact("sales", len(sales))
    stage.fact("counted in each answer", [counted(answer) for answer in answers])
    stage.fact("the last answer, its first rows", shown(answers[-1]))
    stage.fact("dear ones", len(first_cells(rows)))
    judge(stage, answers, sales, once(stage, grouped), sorted(first_cells(rows)) == wanted_dear)
    stage.check("a statement that changes something is refused", is_refused(stage, topic))


def until_counted(stage: Stage, answers: "list[Update]", count: int) -> None:
    stage.wait_until(
        lambda: bool(answers) and counted(answers[-1]) == count, f"{count} counted", SECONDS
    )


def first_cells(updates: "list[Update]") -> list[Any]:
    return [row[0] for update in updates for row in update.rows]


def judge(
    stage: Stage, answers: "list[Update]", sales: list[Sale], asked: Sums, dear: bool
) -> None:
    counts = [counted(answer) for answer in answers]
    stage.check(
        f"the answer changed with each of the {PARTS} parts, and never went back",
        len(set(counts)) >= PARTS and counts == sorted(counts),
    )
    stage.check("each answer was whole", all(answer.whole for answer in answers))
    stage.check(
        "the last answer is what Python counts, by window and kind, to the cent",
        sums(answers[-1].rows) == reference(sales),
    )
    stage.check("the same query asked once says the same", asked == reference(sales))
    stage.check("the query that only filters gave each of its rows once", dear)


@contextmanager
def following(stage: Stage, text: str) -> "Iterator[list[Update]]":
    """A query that is followed on another thread for as long as the block lasts."""
    from headrace.spark.session import session
    from headrace.spark.sql.running import SqlOptions, follow

    session("headrace-sql")  # one for both, whoever comes first
    updates: list[Update] = []
    stop, failures = threading.Event(), list[Exception]()

    def work() -> None:
        try:
            options = SqlOptions(text, every=0.2)
            follow(options, lambda: stage.connection, updates.append, stop=stop)
        except Exception as failure:  # told by whoever waits for the answer
            failures.append(failure)

    thread = threading.Thread(target=work, name="sql", daemon=True)
    thread.start()
    try:
        yield updates
    finally:
        stop.set()
        thread.join(SECONDS)
        if failures:
            raise failures[0]


def once(stage: Stage, text: str) -> Sums:
    from headrace.spark.sql.running import SqlOptions, ask

    return sums(list(ask(SqlOptions(text), lambda: stage.connection).rows()))


def is_refused(stage: Stage, topic: str) -> bool:
    from headrace.spark.sql.running import SqlOptions, ask

    try:
        ask(SqlOptions(f"INSERT INTO `{topic}` SELECT 1"), lambda: stage.connection)
    except BadInput:
        return True
    return False


# --- the sales ---


def make_sales(dice: random.Random) -> list[Sale]:
    seconds = int(DAY.total_seconds())
    return [
        (
            BEGIN + timedelta(seconds=dice.randrange(seconds)),
            dice.choice(KINDS),
            dice.randrange(99, 5000),
        )
        for _ in range(SALES_PER_PART)
    ]


def send(stage: Stage, topic: str, sales: list[Sale], first: int) -> None:
    with Producer(stage.connection) as producer:
        for number, (when, kind, cents) in enumerate(sales, first):
            value = orjson.dumps({"number": number, "kind": kind, "cents": cents})
            producer.send(topic, value, timestamp=int(when.timestamp() * 1000))


def reference(sales: list[Sale]) -> Sums:
    """By window and kind: how many, and for how much."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for when, kind, cents in sales:
        found[(BEGIN + (when - BEGIN) // WINDOW * WINDOW).isoformat(), kind].append(cents)
    return {key: (len(all_), Decimal(sum(all_)) / 100) for key, all_ in found.items()}


def sums(rows: list[list[Any]]) -> Sums:
    return {(at, kind): (sales, Decimal(amount)) for at, kind, sales, amount in rows}


def counted(answer: "Update") -> int:
    return sum(row[2] for row in answer.rows)


def shown(answer: "Update") -> list[dict[str, Any]]:
    names = [column.name for column in answer.columns]
    return [dict(zip(names, row, strict=True)) for row in sorted(answer.rows)[:6]]
