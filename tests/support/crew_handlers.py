"""Handlers that worker processes import: a value is `what|file|line`, and the line is appended."""

import os
import sys
import time
from pathlib import Path

from headrace.model import Record


class Odd(Exception):
    """Cannot be made again from its arguments, so it does not come back from a process."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def handle(value: bytes) -> None:
    what, path, line = value.decode().split("|")
    _append(path, line)
    if what == "raise":
        raise ValueError(line)
    if what == "odd":
        raise Odd(line, "more")
    if what == "exit":
        sys.exit(line)
    if what == "die":
        os._exit(1)
    if what == "die once" and Path(path).read_text().split().count(line) == 1:
        os._exit(1)
    if what == "stay":
        time.sleep(60)


def handle_many(values: list[bytes], records: list[Record]) -> None:
    path = values[0].decode().split("|")[1]
    _append(path, ",".join(str(record.offset) for record in records))


def _append(path: str, line: str) -> None:
    with open(path, "a") as file:  # noqa: PTH123 (one write, at the end whoever else writes)
        file.write(f"{line}\n")
