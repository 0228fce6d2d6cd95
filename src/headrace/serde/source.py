"""Python source in lines that are not too long: expressions, comments, docstrings."""

import textwrap
from dataclasses import dataclass

WIDTH = 88  # fits those who allow 100 as well


@dataclass(frozen=True)
class Group:
    """Parts within brackets, on one line if they fit, else a line each."""

    opening: str
    parts: "tuple[Source, ...]"
    closing: str
    comma: str = ","


Source = str | Group


def one_line(source: Source) -> str:
    if isinstance(source, str):
        return source
    separator = f"{source.comma} " if source.comma else " "
    return source.opening + separator.join(map(one_line, source.parts)) + source.closing


def lines(prefix: str, source: Source, suffix: str = "", indent: str = "    ") -> list[str]:
    """The prefix and an expression, broken where it must be."""
    whole = f"{indent}{prefix}{one_line(source)}{suffix}"
    if isinstance(source, str) or len(whole) <= WIDTH:
        return [whole]
    found = [f"{indent}{prefix}{source.opening}"]
    for part in source.parts:
        found += lines("", part, source.comma, indent + "    ")
    return [*found, f"{indent}{source.closing}{suffix}"]


def text(value: str) -> Source:
    """A text literal, in pieces if it is long."""
    size = WIDTH - 24
    if len(value) <= size // 2:
        return quoted(value)
    pieces = [value[start : start + size] for start in range(0, len(value), size)]
    return Group("(", tuple(map(quoted, pieces)), ")", comma="")


def quoted(value: str) -> str:
    """A text literal in ASCII, in the quotes that need fewer escapes."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    inner = (f"\\{c}" if c == quote else c if c in "'\"" else ascii(c)[1:-1] for c in value)
    return f"{quote}{''.join(inner)}{quote}"


def comment(words: str) -> list[str]:
    return textwrap.wrap(
        _clean(words),
        WIDTH,
        initial_indent="    # ",
        subsequent_indent="    # ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def docstring(words: str, indent: str = "    ") -> list[str]:
    """Backslashes and quotes escaped, so that any text can stand in it."""
    escaped = _clean(words).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if escaped.endswith('"'):
        escaped = f'{escaped[:-1]}\\"'
    one = f'{indent}"""{escaped}"""'
    if len(one) <= WIDTH:
        return [one]
    folded = textwrap.wrap(
        escaped, WIDTH - len(indent) - 3, break_long_words=False, break_on_hyphens=False
    )
    first, *rest = folded
    return [f'{indent}"""{first}', *(f"{indent}{line}" for line in rest), f'{indent}"""']


def _clean(words: str) -> str:
    """One paragraph of printable characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())
