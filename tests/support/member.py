"""A member of a group in a process of its own, with a ledger of what it handled.

    python -m support.member BOOTSTRAP TOPIC GROUP LEDGER OPTIONS(JSON)

Each handled record is two lines of the ledger, appended by single writes: `s` when its handler
starts, `e` when it ends, with the member, key, value, place and the machine's monotonic clock.
"""

import json
import os
import sys
import time

import headrace as hr


def main() -> None:
    bootstrap, topic, group, ledger, given = sys.argv[1:]
    options = json.loads(given)
    work = options.pop("work_ms", 0) / 1000
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    member = options.pop("member", str(os.getpid()))

    def note(kind: str, value: bytes, record: hr.Record) -> None:
        line = (kind, member, (record.key or b"").decode(), value.decode(), record.where)
        os.write(file, ("\t".join(line) + f"\t{time.monotonic_ns()}\n").encode())

    app = hr.App(bootstrap)

    @app.consumer(topic, group=group, **options)
    def handle(value: bytes, record: hr.Record) -> None:
        note("s", value, record)
        if work:
            time.sleep(work)
        note("e", value, record)

    app.run()


if __name__ == "__main__":
    main()
