"""What the store of the clickstream sells: one fixed catalog, the same for every seed.

So files of different seeds are files of one store: a product has one category, brand and price in
all of them. Only `random()`, `+ - * /` and integers are used, which give the same digits with
every Python and on every machine; powers and logarithms do not.
"""

from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random

Draw = Callable[[], float]

CATALOG_SEED = 20191001
CODED, UNCODED = 136, 167  # categories with and without a code, besides smartphones

# The codes after smartphones, the most visited first.
CODES = """
electronics.audio.headphone computers.notebook electronics.clocks electronics.clocks
appliances.environment.air_heater appliances.kitchen.washer appliances.environment.vacuum
electronics.video.tv apparel.shoes.keds appliances.kitchen.refrigerators apparel.shoes
appliances.environment.water_heater computers.desktop auto.accessories.alarm
auto.accessories.player computers.components.hdd computers.peripherals.monitor
construction.tools.saw appliances.kitchen.meat_grinder furniture.living_room.cabinet
construction.tools.drill electronics.telephone auto.accessories.videoregister
computers.components.videocards furniture.kitchen.table appliances.kitchen.blender
furniture.bedroom.bed electronics.tablet sport.bicycle construction.tools.welding kids.carriage
computers.peripherals.printer appliances.kitchen.kettle appliances.iron
appliances.kitchen.microwave appliances.sewing_machine furniture.kitchen.chair
construction.tools.pump apparel.shoes.slipons appliances.kitchen.grill
electronics.audio.subwoofer accessories.bag furniture.bathroom.toilet kids.skates
appliances.kitchen.dishwasher appliances.environment.air_conditioner appliances.kitchen.oven
computers.components.power_supply computers.peripherals.mouse stationery.cartrige
furniture.living_room.sofa appliances.ironing_board electronics.audio.microphone
electronics.video.projector electronics.camera.video computers.components.motherboard
kids.toys accessories.umbrella medicine.tools.tonometer sport.trainer accessories.wallet
"""

# By rank, so that they have about the measured shares of smartphones.
PHONE_BRANDS = (
    "samsung apple samsung apple xiaomi samsung apple huawei samsung apple xiaomi oppo "
    "apple samsung huawei xiaomi nokia apple samsung vivo"
)

# By the first word of the code: the usual price, and brands, the best known first.
GROUPS: dict[str, tuple[int, str]] = {
    "electronics": (180, "samsung apple xiaomi casio sony jbl lg garmin huawei"),
    "computers": (300, "lenovo acer hp asus pulser kingston gigabyte dell"),
    "appliances": (130, "bosch samsung lg artel elenberg redmond polaris indesit"),
    "apparel": (70, "respect baden strobbs asics nike"),
    "auto": (110, "starline pioneer triangle yokohama nokian cordiant"),
    "furniture": (230, "brw sv bts"),
    "construction": (110, "makita bosch force karcher"),
    "kids": (80, "carters lego"),
    "sport": (150, "stels torrent"),
    "accessories": (40, "samsonite"),
    "stationery": (30, "hp canon"),
    "medicine": (45, "omron"),
}
# A product's price in percent of its category's usual one, at even steps of probability.
PRICE_PERCENT = (8, 22, 36, 50, 64, 80, 100, 120, 150, 185, 240, 340, 520)
SYLLABLES = "al bor cen dar el fi gor han ir ka lu mar no or pel ri sta to vel zen"

# Chosen so that the measured share of events has no brand, and now and then no price either.
UNBRANDED_CODED, UNBRANDED_UNCODED, UNPRICED = 0.11, 0.26, 0.01


@dataclass(frozen=True)
class Catalog:
    """Shelves of products, one for each category, and how often they are visited, added up.

    A product is the middle of its rows, ready to be written: `id,category_id,code,brand,price,`.
    Those that stand first on a shelf are taken more often.
    """

    shelves: tuple[tuple[bytes, ...], ...]
    visits: tuple[float, ...]

    def shelf(self, draw: Draw) -> tuple[bytes, ...]:
        """A shelf, by how often it is visited."""
        return self.shelves[bisect(self.visits, draw() * self.visits[-1])]


def take(shelf: tuple[bytes, ...], draw: Draw) -> bytes:
    """A product of a shelf: a few are taken often, most rarely."""
    chance = draw()
    return shelf[int(len(shelf) * chance * chance * (0.12 + 0.88 * chance))]


def between(steps: tuple[int, ...], chance: float) -> float:
    """The value at a probability, of those at even steps of probability from 0 to 1.

    >>> between((0, 10, 50), 0.75)
    30.0
    """
    place = chance * (len(steps) - 1)
    step = int(place)
    return steps[step] + (steps[step + 1] - steps[step]) * (place - step)


@dataclass(frozen=True)
class _Category:
    number: int
    code: str
    weight: float  # how many of the measured events
    price: float
    size: int
    brands: list[str]

    @property
    def id(self) -> int:
        return 2_053_013_552_226_107_603 + self.number * 45_238_867


@cache
def catalog() -> Catalog:
    """The store's products: made once, in a fraction of a second."""
    draw = Random(CATALOG_SEED).random
    categories = [_phones(), *_coded(draw), *_uncoded(draw)]
    shelves = tuple(tuple(_products(category, draw)) for category in categories)
    return Catalog(shelves, tuple(accumulate(category.weight for category in categories)))


def _phones() -> _Category:
    return _Category(0, "electronics.smartphone", 1575, 400, 500, PHONE_BRANDS.split())


def _coded(draw: Draw) -> Iterator[_Category]:
    codes = CODES.split()
    for number in range(1, CODED + 1):
        code = codes[(number - 1) % len(codes)]
        price, brands = GROUPS[code.partition(".")[0]]
        yield _category(number, code, 500 / (number + 2.4), price, brands.split(), draw)


def _uncoded(draw: Draw) -> Iterator[_Category]:
    prices = [price for price, _ in GROUPS.values()]
    for rank in range(1, UNCODED + 1):
        price = prices[int(draw() * len(prices))]
        yield _category(CODED + rank, "", 330 / (rank + 0.8), price, [], draw)


def _category(
    number: int, code: str, weight: float, price: int, brands: list[str], draw: Draw
) -> _Category:
    """Much visited categories have more products and more brands."""
    size = 15 + int(2 * weight)
    invented = [_invented_brand(draw) for _ in range(3 + size // 12)]
    return _Category(number, code, weight, price * (0.5 + draw()), size, brands + invented)


def _products(category: _Category, draw: Draw) -> Iterator[bytes]:
    for rank in range(category.size):
        number = (10 + category.number) * 100_000 + rank * 7_919 % 99_991  # scattered, each once
        brand, price = _brand(category, rank, draw), _price(category, draw)
        if not brand and draw() < UNPRICED:
            price = "0.00"
        yield f"{number},{category.id},{category.code},{brand},{price},".encode()


def _brand(category: _Category, rank: int, draw: Draw) -> str:
    brands = category.brands
    if category.number == 0:
        return brands[rank % len(brands)]
    if draw() < (UNBRANDED_CODED if category.code else UNBRANDED_UNCODED):
        return ""
    chance = draw()
    return brands[int(len(brands) * chance * chance)]


def _price(category: _Category, draw: Draw) -> str:
    cents = int(category.price * between(PRICE_PERCENT, draw()))
    return f"{cents // 100}.{cents % 100:02d}"


def _invented_brand(draw: Draw) -> str:
    syllables = SYLLABLES.split()
    return "".join(syllables[int(draw() * len(syllables))] for _ in range(2 + int(draw() * 2)))
