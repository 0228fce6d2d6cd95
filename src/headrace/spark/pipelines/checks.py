"""What definitions have in common: names, twins and decimals."""

import re

from headrace.errors import ConfigError

_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_name(what: str, name: str) -> None:
    """Refuse what SQL would not take for a name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a {what} is named {name!r}", hint="letters, digits and _ only")


def is_decimal(text: str) -> bool:
    """Whether it is a decimal type that Spark has.

    >>> is_decimal("decimal(12,2)"), is_decimal("decimal(2,12)")
    (True, False)
    """
    found = _DECIMAL.fullmatch(text)
    return found is not None and 0 < int(found[1]) <= 38 and int(found[2]) <= int(found[1])


def refuse_twins(what: str, names: list[str]) -> None:
    """Refuse two that are the same: Spark does not tell upper from lower case in names."""
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            raise ConfigError(f"{what} called {name!r}", hint="give each its own name")
