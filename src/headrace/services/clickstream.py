"""The store's clickstream, made up row by row in the shape of the real one.

Measured on a piece of the real file (5,019 events of 1,906 sessions), and matched:

    view 97.9 %, cart 1.0 %, purchase 1.1 %     category_code empty 31.4 %, brand empty 12.6 %
    2.6 events a session, 47 % have one         32 s between two of them (median)
    the next view is of the same product 33 %   of the same category 89 %
    smartphones 31 % of all events              the first 10 % of products 40 %, of users 34 %
    price 166 (median), 0.1 % are 0.00          8 % of sessions are of a user who came back
    six events a second when it is busy         134 bytes a row

Two things differ on purpose. The piece has no remove_from_cart, which the store does send: one row
in a thousand here. And only every fifth of its 54 purchases has a cart in the same session; here
most have, so that a funnel has something to show.

The same seed gives the same bytes with every Python and on every machine: only `random()`, exact
arithmetic and a hash of fixed definition are used. A longer file begins with the shorter one.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random

from headrace.errors import BadInput
from headrace.services.clickstream_catalog import between, catalog, take
from headrace.services.clickstream_faults import KINDS, OVERSIZED_BYTES, bad_rows, spoil

__all__ = ["HEADER", "KINDS", "OVERSIZED_BYTES", "ROW_BYTES", "rows"]

HEADER = (
    b"event_time,event_type,product_id,category_id,category_code,brand,price,user_id,user_session\n"
)
ROW_BYTES = 134  # on average
START = datetime(2019, 10, 1)
MOST_ROWS = 10**12  # with more of them the calendar ends

ARRIVALS = (0, 0, 1, 1, 2, 2, 2, 3, 4, 8)  # users who come in a second, each as likely
# Seconds from one event of a session to the next, at even steps of probability.
GAP_STEPS = (1, 7, 10, 13, 15, 17, 20, 22, 26, 28, 32, 36, 41, 46, 53, 60, 70, 84, 106, 152, 340)
GAPS = tuple(int(between(GAP_STEPS, chance / 1000)) for chance in range(1000))
# Of a thousand sessions, so many have one view, two, three and so on.
SESSIONS_BY_VIEWS = (471, 193, 115, 73, 44, 25, 19, 13, 10, 8, 8, 6, 4, 4, 1, 1, 1, 1, 1, 1, 1)
VIEWS = tuple(n for n, many in enumerate(SESSIONS_BY_VIEWS, 1) for _ in range(many))
DEEDS = (  # after a view, in so many of a thousand sessions: what is done with the product
    *[(b"cart,", b"purchase,")] * 17,
    *[(b"purchase,",)] * 12,
    *[(b"cart,",)] * 7,
    *[(b"cart,", b"remove_from_cart,")] * 3,
)
SAME_PRODUCT, SAME_CATEGORY = 0.33, 0.88  # the next view; the rest goes to any category
COMES_BACK = 0.08
USERS = 1_000_000


def rows(count: int, seed: int = 0, bad: float = 0.0) -> Iterator[tuple[bytes, str | None]]:
    """Each row as its bytes, line end included, and what is bad about it: one of KINDS, or None.

    `round(count * bad)` rows are bad. The header is not among the rows.
    """
    if not 0 <= count <= MOST_ROWS:
        raise BadInput(f"{count} rows cannot be made", hint=f"give 0 to {MOST_ROWS}", rows=count)
    if not 0 <= bad <= 1:
        hint = "give a number from 0 to 1, such as 0.01"
        raise BadInput(f"{bad} is no fraction of rows", hint=hint, bad=bad)
    if not -(2**63) <= seed < 2**63:
        raise BadInput(f"the seed {seed} is too large", hint="give one of 64 bits", seed=seed)
    lines = itertools.chain.from_iterable(_seconds(seed))
    return _spoilt(itertools.islice(lines, count), bad_rows(count, bad))


def _spoilt(
    lines: Iterator[bytes], faults: Iterator[tuple[int, str]]
) -> Iterator[tuple[bytes, str | None]]:
    end = (-1, "")
    place, kind = next(faults, end)
    for number, line in enumerate(lines):
        if number == place:
            yield spoil(line, kind), kind
            place, kind = next(faults, end)
        else:
            yield line, None


def _seconds(seed: int) -> Iterator[list[bytes]]:
    """The lines of each second, without end."""
    visitors = _Visitors(seed)
    for second in itertools.count():
        if lines := visitors.lines(second):
            stamp = f"{START + timedelta(seconds=second)} UTC,".encode()
            yield [stamp + line for line in lines]


class _Visitors:
    """Those who are in the store. What they will do is planned when they come.

    So only lines of sessions that go on are held, under the second in which they are due.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        # Hashed, since Random takes -1 and 1 for the same seed.
        self._draw = Random(int.from_bytes(sha256(b"%d" % seed).digest())).random
        self._catalog = catalog()
        self._planned: defaultdict[int, list[bytes]] = defaultdict(list)
        self._sessions = 0

    def lines(self, second: int) -> list[bytes]:
        """What happens in this second, each without its time; seconds are asked for in order."""
        for _ in range(ARRIVALS[int(self._draw() * len(ARRIVALS))]):
            self._visit(second)
        return self._planned.pop(second, [])

    def _visit(self, second: int) -> None:
        """A user's session, and now and then another one soon after."""
        draw, user = self._draw, self._user()
        end = self._plan_session(second, user)
        while draw() < COMES_BACK:
            end = self._plan_session(end + 2 * GAPS[int(draw() * len(GAPS))], user)

    def _user(self) -> int:
        """A few users come often, most rarely: the first tenth makes a third of the visits."""
        chance = self._draw()
        rank = int(USERS * chance * (0.02 + 0.98 * chance))
        return 512_000_000 + rank * 7_368_787 % 43_463_291  # a prime: each rank has its own id

    def _session(self) -> bytes:
        """A UUID that no other session has, of this seed or another one."""
        self._sessions += 1
        digits = sha256(b"%d %d" % (self._seed, self._sessions)).hexdigest()
        variant = "89ab"[int(digits[16], 16) % 4]
        parts = digits[:8], digits[8:12], "4" + digits[13:16], variant + digits[17:20]
        return "-".join([*parts, digits[20:32]]).encode()

    def _plan_session(self, second: int, user: int) -> int:
        """Views, one of which may lead to a cart or a purchase; returns the last one's second."""
        draw, planned = self._draw, self._planned
        who = b"%d,%s\n" % (user, self._session())
        views = VIEWS[int(draw() * len(VIEWS))]
        deed = int(draw() * 1000)
        decisive = int(draw() * views) if deed < len(DEEDS) else -1
        shelf = self._catalog.shelf(draw)
        what = take(shelf, draw) + who
        for view in range(views):
            if view:
                second += GAPS[int(draw() * len(GAPS))]
                step = draw()
                if step >= SAME_CATEGORY:
                    shelf = self._catalog.shelf(draw)
                if step >= SAME_PRODUCT:
                    what = take(shelf, draw) + who
            planned[second].append(b"view," + what)
            if view == decisive:
                second = self._plan_deeds(second, DEEDS[deed], what)
        return second

    def _plan_deeds(self, second: int, deeds: tuple[bytes, ...], what: bytes) -> int:
        for deed in deeds:
            gap = GAPS[int(self._draw() * len(GAPS))]
            second += 2 * gap if deed == b"purchase," else gap  # to pay takes its time
            self._planned[second].append(deed + what)
        return second
