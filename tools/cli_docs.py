"""Writes docs/cli.md from the commands themselves; `--check` only compares."""

import os
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
INTRODUCTION = """# The command line

Written by `make docs` from the commands themselves.

Results go to stdout, everything else to stderr. Exit status: 0 done, 1 the operation failed or a
promise did not hold, 2 bad usage or bad input, 130 stopped by Ctrl-C, 143 by SIGTERM.
"""


def page() -> str:
    """The whole page."""
    os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = "100"
    import typer.main

    from headrace.cli.main import app

    root = typer.main.get_command(app)
    return INTRODUCTION + "".join(_sections(root, "headrace", None))


def _sections(command: object, path: str, parent: object) -> list[str]:
    context = command.make_context(  # type: ignore[attr-defined]
        path.rpartition(" ")[2], [], parent=parent, resilient_parsing=True, max_content_width=100
    )
    text = command.get_help(context).strip()  # type: ignore[attr-defined]
    found = [f"\n## {path}\n```text\n{text}\n```\n"]
    for name, child in getattr(command, "commands", {}).items():
        found += _sections(child, f"{path} {name}", context)
    return found


if __name__ == "__main__":
    wanted = page()
    if "--check" in sys.argv:
        current = PAGE.read_text("utf-8") if PAGE.exists() else ""
        sys.exit(0 if wanted == current else "docs/cli.md is stale: run `make docs`")
    PAGE.write_text(wanted, "utf-8")
