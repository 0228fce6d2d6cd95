"""One round of a fault, watched from before it to its full recovery."""

from collections.abc import Callable

from headrace.clients import Admin
from headrace.errors import HeadraceError
from headrace.testing import Faults
from support.ledger import Writer
from support.waiting import eventually

ROUND = 100  # so many acknowledgements show that writing is under way


def kill_and_return(
    admin: Admin,
    faults: Faults,
    topic: str,
    partition: int,
    writer: Writer,
    meanwhile: Callable[[int], None] = lambda _killed: None,
) -> tuple[int, int]:
    """Kill a partition's leader under load and bring it back; returns the old and the new leader.

    1. The writer is under way.
    2. The leader gets SIGKILL; another broker leads, with one copy fewer.
    3. The writer goes on, and so does whatever is to be tried `meanwhile`.
    4. The killed broker is started, and all three copies are in sync again.
    """

    def look() -> tuple[int | None, int]:
        try:
            seen = admin.topic(topic).partitions[partition]
        except HeadraceError:  # the broker that was asked may be the dying one
            return None, 0
        return seen.leader, len(seen.isr)

    def goes_on() -> None:
        before = len(writer.acknowledged)
        eventually(lambda: len(writer.acknowledged) > before + ROUND, "writing goes on", 60)

    goes_on()  # 1
    killed, _ = look()
    assert killed is not None
    faults.kill(killed)  # 2

    def succeeded() -> int | None:
        leader, copies = look()
        return leader if leader != killed and copies == 2 else None

    successor = eventually(succeeded, "another broker leads, with two copies", 60)
    assert successor is not None
    goes_on()  # 3
    meanwhile(killed)
    faults.start(killed)  # 4
    eventually(lambda: look()[1] == 3, "all three copies are in sync", 60)
    return killed, successor
