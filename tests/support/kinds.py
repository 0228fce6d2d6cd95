"""What a test costs to run: its kind, and how much time each kind may take.

| kind | needs |
| --- | --- |
| unit | nothing |
| docs | the documents, at times a cluster |
| kafka | the session's cluster |
| spark | the session's Spark |
| processes | servers or Spark drivers of its own |

Prove a promise with the first kind that can prove it.
"""

import re

import pytest

# Seconds in `make test`, added up over the workers. Two workers and ten minutes make 1,200.
BUDGETS = {"unit": 150, "docs": 75, "kafka": 250, "spark": 450, "processes": 275}
# Tests of tables, by the beginning of their file's name. The other half of Spark's tests is about
# getting records into Kafka.
_TABLES = re.compile(
    "test_(backfill|batch|clickstream|factory|lag|lake|pipeline|reconcile|replay|value)"
)


def kind_of(item: pytest.Item) -> str:
    """By its folder, its fixtures, and the mark `processes`."""
    folder = item.path.parent.name
    if folder in ("unit", "docs"):
        return folder
    fixtures = getattr(item, "fixturenames", ())
    if "home" in fixtures or item.get_closest_marker("processes"):
        return "processes"
    return "spark" if "spark" in fixtures else "kafka"


def group_of(item: pytest.Item) -> str | None:
    """Tests of a group run on one worker; None if any worker will do.

    Spark takes long to start and longer to warm up: each worker has one for half of those tests.
    Servers that tests start want the usual ports: two tests at once would both find them free.
    """
    kind = kind_of(item)
    if kind == "spark":
        return "tables" if _TABLES.match(item.path.name) else "records"
    return kind if kind == "processes" else None


def arrange(items: list[pytest.Item]) -> None:
    """The longest kinds first, so that no worker is left with one of them at the end."""
    order = ["spark", "processes", "kafka", "docs", "unit"]
    for item in items:
        item.user_properties.append(("kind", kind_of(item)))
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: order.index(kind_of(item)))
