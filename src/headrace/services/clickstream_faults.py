"""Bad rows for the clickstream: what spoils a row, and which rows are spoilt."""

from collections.abc import Callable, Iterator

OVERSIZED_BYTES = 1_200_000  # more than a broker takes in one record by default

TIME, PRODUCT_ID, BRAND, PRICE = 0, 2, 5, 6


def _replaced(column: int, value: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda columns: [*columns[:column], value, *columns[column + 1 :]]


_SPOILERS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "too_few_columns": lambda columns: columns[:-2],
    "too_many_columns": lambda columns: [*columns, b"surplus"],
    "bad_product_id": _replaced(PRODUCT_ID, b"12x4"),
    "bad_price": _replaced(PRICE, b"abc"),
    "bad_time": _replaced(TIME, b"2019-13-45 25:61:00 UTC"),
    "invalid_utf8": _replaced(BRAND, b"br\xfcder"),  # Latin-1
    "oversized": _replaced(BRAND, b"x" * OVERSIZED_BYTES),
    "quoted_newline": _replaced(BRAND, b'"two\nlines"'),  # one row, two lines
}
_OFTEN = tuple(kind for kind in _SPOILERS if kind != "oversized")

KINDS = (*_SPOILERS, "truncated")
"""Every kind of bad row. The last one ends the file: half a line, and no line end."""


def spoil(line: bytes, kind: str) -> bytes:
    """The bad row that a good one becomes.

    >>> spoil(b"t,view,1,2,,b,3.00,4,s\\n", "bad_price")
    b't,view,1,2,,b,abc,4,s\\n'
    """
    if kind == "truncated":
        return line[: len(line) // 2]
    return b",".join(_SPOILERS[kind](line.removesuffix(b"\n").split(b","))) + b"\n"


def bad_rows(count: int, bad: float) -> Iterator[tuple[int, str]]:
    """Which of `count` rows are bad, from 0, and of which kind: `round(count * bad)` of them.

    The last row is truncated; the others are spread evenly before it, of each kind in turn.

    >>> list(bad_rows(9, 0.4))
    [(1, 'too_few_columns'), (4, 'too_many_columns'), (6, 'bad_product_id'), (8, 'truncated')]
    """
    spread = round(count * bad) - 1
    for turn in range(spread):
        yield (2 * turn + 1) * (count - 1) // (2 * spread), _kind(turn, spread)
    if spread >= 0:
        yield count - 1, KINDS[-1]


def _kind(turn: int, turns: int) -> str:
    """The kinds in turn; oversized in three rounds at most, or the file would explode."""
    lap, place = divmod(turn, len(_SPOILERS))
    kind = KINDS[place]
    whole_laps = turns // len(_SPOILERS)
    if kind != "oversized" or lap in {0, whole_laps // 2, whole_laps - 1}:
        return kind
    return _OFTEN[lap % len(_OFTEN)]
