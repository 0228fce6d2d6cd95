"""PySpark's daemon, from which workers are forked; but one whose task was cancelled dies quietly.

When a task is cancelled, the JVM closes its worker's pipe. A worker that writes just then prints
the broken pipe's traceback, which on one machine ends up on the user's terminal.
"""

import sys
import traceback

from pyspark import daemon


class _Tales:
    """What the daemon uses of the module `traceback`."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            traceback.print_exc()


if __name__ == "__main__":
    vars(daemon)["traceback"] = _Tales
    daemon.manager()
