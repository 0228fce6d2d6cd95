"""PySpark's daemon, from which workers are forked; but one whose task was cancelled dies quietly.

When a task is cancelled, the JVM closes its worker's connection. A worker that writes or reads just
then prints the traceback of it, which on one machine ends up on the user's terminal. What happens
in the code of a task is told to the JVM and does not come here.
"""

import sys
import traceback

from pyspark import daemon

CONNECTION_CLOSED = (BrokenPipeError, ConnectionResetError, EOFError)


class _Tales:
    """What the daemon uses of the module `traceback`."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], CONNECTION_CLOSED):
            traceback.print_exc()


if __name__ == "__main__":
    vars(daemon)["traceback"] = _Tales
    daemon.manager()
