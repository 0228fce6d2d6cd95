"""Members of a group that come and go at random."""

import random
import signal
import sys
import time

from headrace.local import LocalCluster
from support.handled import Handled, Members, interrupt, judge_handled, send_numbers
from support.waiting import eventually


def churn(cluster: LocalCluster, members: Members, dice: random.Random, seconds: float) -> Handled:
    """Members come, leave in order or are killed, while records keep coming.

    Returns what became of the records; without a kill, none was handled twice.
    """
    options = {"concurrency": 20, "work_ms": 5, "settings": {"session.timeout.ms": 10_000}}
    sent, killed = 0, 0
    alive = {members.start(member=f"m{n}", **options): n for n in range(2)}
    number, end = 2, time.monotonic() + seconds
    while time.monotonic() < end:
        send_numbers(cluster.bootstrap, members.topic, 500, keys=120, first=sent)
        sent += 500
        act = dice.choice(["join", "leave", "kill", "rest"])
        if act == "join" and len(alive) < 4:
            alive[members.start(member=f"m{number}", **options)] = number
            number += 1
        elif act in ("leave", "kill") and len(alive) > 1:
            process = dice.choice(sorted(alive, key=alive.__getitem__))
            name = f"m{alive.pop(process)}"
            if act == "kill":
                killed += 1
                process.kill()
            elif status := interrupt(
                process
            ):  # one that has only just been started knows no signal
                assert status == -signal.SIGTERM, members.logs()
                assert name not in {line.member for line in members.lines()}, members.logs()
        before = len(members.finished())
        wanted = min(before + 200, sent)
        eventually(members.have_finished(wanted), "the group makes progress", 60)
    eventually(members.have_finished(sent), "all is handled", 90)
    result = judge_handled(members.lines(), set(range(sent)))
    sys.stdout.write(
        f"{sent:,} records, {number} members, {killed} killed, {result.repeated} again\n"
    )
    if not killed:
        assert result.repeated == 0
    return result
