"""Runs a command and draws what it printed as an SVG picture.

.venv/bin/python tools/picture.py docs/demo.svg headrace demo
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

WIDTH = 100


def main() -> None:
    target, *command = sys.argv[1:]
    environment = os.environ | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    program = str(Path(sys.executable).parent / command[0])
    done = subprocess.run(
        [program, *command[1:]],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    console = Console(record=True, width=WIDTH, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(Text.from_ansi(f"$ {' '.join(command)}\n{done.stdout}"))
    # The fonts of the template would be fetched from elsewhere; the viewer's own will do.
    template = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    template = re.sub(r"<!--.*?-->", "", template, flags=re.DOTALL)
    Path(target).write_text(console.export_svg(title=" ".join(command), code_format=template))


if __name__ == "__main__":
    main()
