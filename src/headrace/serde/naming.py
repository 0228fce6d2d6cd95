"""Python names for the names of an Avro schema: kept wherever Python can."""

import keyword
import re
from collections.abc import Set

# What every written module may use; a class or field must not hide it.
ALWAYS_RESERVED = frozenset(
    {
        *("bool", "bytes", "dict", "float", "int", "list", "str"),
        *("ClassVar", "StrEnum", "dataclass", "field", "self"),
    }
)
# An enum's member must not hide what every text has, nor what enums need themselves.
_TAKEN_IN_ENUMS = frozenset({*dir(str), "mro", "name", "value"})


def class_names(full_names: list[str], reserved: Set[str]) -> dict[str, str]:
    """A class for each full name: its last part, or with a number if two have the same."""
    names: dict[str, str] = {}
    for full in full_names:
        name = wanted = _free(_identifier(full.rpartition(".")[2]), reserved)
        number = 2
        while name in names.values():
            name, number = f"{wanted}{number}", number + 1
        names[full] = name
    return names


def field_names(avro_names: list[str], reserved: Set[str]) -> dict[str, str]:
    """An attribute for each field of a record."""
    names: dict[str, str] = {}
    kept = {name for name in avro_names if _identifier(name) == name}
    for avro in avro_names:
        wanted = _identifier(avro)
        # A name that had to change makes way for one that did not.
        others = set(names.values()) | (kept - {avro})
        names[avro] = _free(wanted, others | reserved)
    return names


def member_names(symbols: list[str]) -> dict[str, str]:
    """A member for each symbol of an enum."""
    names: dict[str, str] = {}
    for symbol in symbols:
        taken = set(names.values()) | (set(symbols) - {symbol}) | _TAKEN_IN_ENUMS
        # Names within underscores mean something to Python's enums.
        wanted = f"symbol{symbol}" if symbol.startswith("_") else _identifier(symbol)
        names[symbol] = _free(wanted, taken)
    return names


def _identifier(name: str) -> str:
    wanted = re.sub(r"[^0-9A-Za-z_]", "_", name)
    if not wanted or wanted[0].isdigit() or wanted.startswith("__"):
        wanted = f"field_{wanted.lstrip('_')}"  # two underscores would be mangled in a class
    return f"{wanted}_" if keyword.iskeyword(wanted) else wanted


def _free(wanted: str, taken: Set[str]) -> str:
    if wanted not in taken:
        return wanted
    if f"{wanted}_" not in taken:
        return f"{wanted}_"
    number = 2
    while f"{wanted}_{number}" in taken:
        number += 1
    return f"{wanted}_{number}"
