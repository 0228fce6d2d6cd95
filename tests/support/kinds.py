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

import pytest

# Seconds in `make test`, added up over the workers. Two workers and ten minutes make 1,200.
BUDGETS = {"unit": 150, "docs": 75, "kafka": 250, "spark": 450, "processes": 275}
# Servers that tests start choose the usual ports where these are free. Two tests at once would
# both find them free, so all of them run on one worker. So do those that share Spark, which takes
# long to start and longer to warm up.
_GROUPS = {"spark": "spark", "processes": "processes"}


def kind_of(item: pytest.Item) -> str:
    """By its folder, its fixtures, and the mark `processes`."""
    folder = item.path.parent.name
    if folder in ("unit", "docs"):
        return folder
    fixtures = getattr(item, "fixturenames", ())
    if "home" in fixtures or item.get_closest_marker("processes"):
        return "processes"
    return "spark" if "spark" in fixtures else "kafka"


def arrange(items: list[pytest.Item]) -> None:
    """The longest kinds first, so that no worker is left with one of them at the end."""
    order = ["spark", "processes", "kafka", "docs", "unit"]
    for item in items:
        kind = kind_of(item)
        item.user_properties.append(("kind", kind))
        if kind in _GROUPS:
            item.add_marker(pytest.mark.xdist_group(_GROUPS[kind]))
    items.sort(key=lambda item: order.index(kind_of(item)))
