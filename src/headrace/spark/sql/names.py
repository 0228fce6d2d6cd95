"""The names in a query, and what they stand for. Pure.

>>> name = Name(("shop", "clicks"), 14, 25)
>>> (found,) = find([name], tables=["events"], topics=lambda: ["shop.clicks"])
>>> found.kind, found.called
('topic', 'shop.clicks')
>>> rewritten("SELECT * FROM shop.clicks", {name: quoted(found.called)})
'SELECT * FROM `shop.clicks`'
"""

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.errors import BadInput

SHOWN_NAMES = 20


@dataclass(frozen=True)
class Name:
    """A name as it stands in a query, from one character up to another. `past` says that an
    earlier version of it is meant."""

    parts: tuple[str, ...]
    start: int
    end: int
    past: bool = False

    @property
    def text(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Found:
    """What a name stands for, and what that is really called."""

    name: Name
    kind: Literal["table", "topic"]
    called: str


def find(
    names: Sequence[Name], tables: Collection[str], topics: Callable[[], Collection[str]]
) -> list[Found]:
    """What each name stands for: a table, else a topic. Topics are asked for only if some name is
    no table. Capitals matter only where names differ in nothing else."""
    found = []
    for name in names:
        if (table := _match(name.text, tables)) is not None:
            found.append(Found(name, "table", table))
        elif (topic := _match(name.text, known := topics())) is not None:
            found.append(Found(name, "topic", topic))
        else:
            raise _unknown(name.text, tables, known)
    _refuse_twins(found)
    return found


def rewritten(text: str, replacements: Mapping[Name, str]) -> str:
    """The query with other words for names."""
    for name in sorted(replacements, key=lambda name: name.start, reverse=True):
        text = text[: name.start] + replacements[name] + text[name.end :]
    return text


def quoted(name: str) -> str:
    """One name, whatever its characters.

    >>> quoted("my-topic")
    '`my-topic`'
    """
    return "`" + name.replace("`", "``") + "`"


def _match(wanted: str, names: Collection[str]) -> str | None:
    if wanted in names:
        return wanted
    alike = [name for name in names if name.lower() == wanted.lower()]
    return alike[0] if len(alike) == 1 else None


def _refuse_twins(found: Sequence[Found]) -> None:
    """Spark would take both for the same."""
    called: dict[str, str] = {}
    for each in found:
        other = called.setdefault(each.called.lower(), each.called)
        if other != each.called:
            raise BadInput(
                f"{other} and {each.called} differ only in capitals, and Spark knows no difference",
                hint="ask for one of them at a time",
            )


def _unknown(wanted: str, tables: Collection[str], topics: Collection[str]) -> BadInput:
    names = [*tables, *(topic for topic in topics if not topic.startswith("__"))]
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    ordered = list(dict.fromkeys([*close, *names]))
    shown = ", ".join(ordered[:SHOWN_NAMES]) or "nothing yet"
    if len(ordered) > SHOWN_NAMES:
        shown += f" and {len(ordered) - SHOWN_NAMES} more"
    hint = f"did you mean {close[0]}? There is {shown}" if close else f"there is {shown}"
    return BadInput(f"there is no table and no topic {wanted!r}", hint=hint, name=wanted)
