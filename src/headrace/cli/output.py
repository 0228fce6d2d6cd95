"""Results on stdout: a table for people, JSON for programs."""

import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text


class Output(StrEnum):
    """How a result is printed."""

    table = "table"
    json = "json"
    ndjson = "ndjson"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="How to print the result.", show_default=True)
]


def console() -> "Console":
    """Standard output; wide enough not to fold a table when it goes into a pipe or a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def write_json(document: Any) -> None:
    """One JSON document, indented."""
    sys.stdout.buffer.write(_to_json(document, indented=True))
    sys.stdout.buffer.flush()


def write_ndjson(documents: Iterable[Any]) -> None:
    """A document a line."""
    for document in documents:
        sys.stdout.buffer.write(_to_json(document))
    sys.stdout.buffer.flush()


def _to_json(document: Any, *, indented: bool = False) -> bytes:
    """Keys that are numbers and values that JSON does not know (decimals) become text."""
    import orjson

    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    if indented:
        options |= orjson.OPT_INDENT_2
    return orjson.dumps(document, default=str, option=options)


def show(
    document: Any, output: Output, table: Callable[[], "RenderableType | Sequence[Any]"]
) -> None:
    """Print a result. `table` is only called when a table is wanted; lists are lines of ndjson."""
    if output is Output.json:
        write_json(document)
    elif output is Output.ndjson:
        write_ndjson(document if isinstance(document, list) else [document])
    else:
        drawn = table()
        parts = drawn if isinstance(drawn, list | tuple) else [drawn]
        out = console()
        for part in parts:
            out.print(part)


def grid(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    title: str | None = None,
    *,
    tight: bool = False,
) -> "RenderableType":
    """A plain table. Columns that begin with `>` are numbers, set to the right; `tight` is for many
    of them."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(
        title=None if title is None else escape(title),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        padding=(0, 1, 0, 0) if tight else (0, 1),
    )
    for column in columns:
        right = column.startswith(">")
        name = escape(column.removeprefix(">"))
        drawn.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(_cell(value) for value in row))
    return drawn


def coloured(text: str, style: str) -> "Text":
    """A cell in a colour of its own."""
    from rich.text import Text

    return Text(text, style=style)


def _cell(value: Any) -> "str | Text":
    from rich.markup import escape
    from rich.text import Text

    if isinstance(value, Text):
        return value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return escape(str(value))


def hint(text: str) -> None:
    """A next step, for people: on stderr, so that results stay clean."""
    sys.stderr.write(f"hint: {text}\n")
