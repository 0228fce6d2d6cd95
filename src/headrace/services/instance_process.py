"""One instance of an app, started by `instances.Instance`."""

import gc
import json
import os
import sys
import threading
from typing import Any

from headrace.clients.connection import use_by_default
from headrace.errors import HeadraceError
from headrace.observe.events import Event
from headrace.parallel import App
from headrace.services.instances import TOLD_EVERY, heard, load_app


class Teller:
    """Writes JSON lines to the parent, as long as it listens."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def tell(self, **said: Any) -> None:
        line = json.dumps(said, default=str) + "\n"
        with self._lock:
            try:
                os.write(self._descriptor, line.encode())
            except OSError:
                return

    def event(self, event: Event) -> None:
        self.tell(event=[event.level, str(event)])


def main(reference: str, number: str, instances: str, descriptor: str) -> int:
    teller = Teller(int(descriptor))
    connection = json.loads(sys.stdin.readline() or "null")
    if connection is not None:
        use_by_default(heard(connection))  # also by clients that the app's module makes
    try:
        app = load_app(reference)
    except HeadraceError as error:
        teller.tell(error=[error.message, error.hint])
        return error.exit_status
    gc.collect()
    gc.freeze()  # what is loaded by now stays: the collector need not look at it again
    try:
        app.listen(teller.event)
        threading.Thread(target=_obey, args=(app,), daemon=True).start()
        threading.Thread(target=_report, args=(app, teller), daemon=True).start()
        app.run(instance=int(number), instances=int(instances))
    except HeadraceError as error:
        teller.tell(error=[error.message, error.hint])
        return error.exit_status
    finally:
        teller.tell(consumers=[status.to_json() for status in app.status()])
    return 0


def _obey(app: App) -> None:
    for _line in sys.stdin:
        app.stop()
    app.stop()  # the parent is gone


def _report(app: App, teller: Teller) -> None:
    pause = threading.Event()
    while not pause.wait(TOLD_EVERY):
        teller.tell(consumers=[status.to_json() for status in app.status()])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
