"""Values on Spark, without Kafka: what is read of them, and what is said of the rest."""

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
import pytest

from headrace.errors import RegistryError, RegistryUnreachable
from headrace.serde import Registry
from headrace.serde.avro import wire_header
from headrace.spark.pipelines import Avro, Csv, Field, Json
from support.fake_registry import FakeRegistry

pytest.importorskip("pyspark")

from headrace.spark.pipelines.avro_values import AvroReader
from headrace.spark.pipelines.csv_values import CsvReader
from headrace.spark.pipelines.json_values import JsonReader


@pytest.fixture
def show(spark):
    """What a reader finds in values, in their order: columns and what is rescued, or a reason."""

    def run(read, values):
        table = [(number, value) for number, value in enumerate(values)]
        records = spark.createDataFrame(table, "number int, value binary").coalesce(1)
        found = read(records)
        if found.strange is not None:
            strange = found.rows.select(found.strange).distinct().dropna().collect()
            if strange and read.learn([row[0] for row in strange], spark):
                found = read(records)
        rows = found.rows.select(
            "number", found.problem.alias("problem"), *found.columns, found.rescued.alias("r")
        )
        return [row[1] or tuple(row[2:]) for row in sorted(rows.collect())]

    return run


THREE = (Field("a"), Field("b"), Field("c"))
NOON = datetime(2019, 10, 1, 12)


# --- JSON ---

NAMES = ('"a"', '"b"', '"c"')
ODD_NAMES = ('"A"', '"more"', '"a:b"', '"a,b"', '"x\\"a"', '"\\u0061"')
CONTENTS = (
    *("null", "1", '"x"', '""', '"x:y"', '"x,y"', "[1,2]"),
    *('{"a":null}', '{"q":"b:"}', '["a:b"]', '["a,b"]', "[{}]"),
)
TEXT_PARTS = (
    *("x", ":", ",", '\\"a":', "\\\\", "}", "{", "é", "\ufffd"),
    *("\\u003a", "\\u002c", "\\u0000", '\\"'),
)
DAMAGES = (b"\xff", b"\xc3", b"}", b"{", b'"', b":", b"\x00", b",\x00,", b"{}", b'{"a":1}', b"\\")


def json_text(dice):
    """An object with few fields, most of them declared; now and then it is damaged."""

    def content():
        if dice.random() < 0.5:
            return dice.choice(CONTENTS)
        return '"' + "".join(dice.choices(TEXT_PARTS, k=dice.randrange(4))) + '"'

    names = [dice.choice(dice.choice((NAMES, NAMES, ODD_NAMES))) for _ in range(dice.randrange(5))]
    colon = dice.choice((":", ":", " : "))
    text = ("{" + ",".join(name + colon + content() for name in names) + "}").encode()
    if dice.random() < 0.2:
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice(DAMAGES) + text[at:]
    return text


def by_pythons_json(value):
    """The object, or None if it is none."""
    try:
        found = json.loads(value.decode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def test_objects_are_read_as_pythons_own_parser_does(show, dice):
    """No field is overlooked and no damage, whatever looks like a key, an end or a letter."""
    values = [json_text(dice) for _ in range(20_000)]
    rescued, frozen = (
        show(JsonReader(Json(*THREE, drift=drift)), values) for drift in ("rescue", "freeze")
    )
    good = 0
    for value, row, strict in zip(values, rescued, frozen, strict=True):
        expected = by_pythons_json(value)
        if expected is None:
            assert isinstance(row, str), (value, row)
            assert strict == row, value
            continue
        good += 1
        more = sorted(expected.keys() - {"a", "b", "c"})
        assert sorted(json.loads(row[3] or "{}")) == more, (value, row)
        assert isinstance(strict, str) == bool(more), (value, strict)
        for name, found in zip("abc", row, strict=False):
            given = expected.get(name)
            assert found == given or not isinstance(given, str | None), (value, row)
    assert 5_000 < good < 18_000


def test_bad_bytes_behind_what_spark_reads_of_a_date_are_seen(show):
    read = JsonReader(Json(Field("day", "date")))
    damaged, whole = b'{"day":"2019-10-01 \xff"}', b'{"day":"2019-10-01"}'
    assert show(read, [damaged, whole]) == ["the value is not UTF-8", (NOON.date(), None)]


# --- CSV ---


def by_python(text):
    """The fields of a row, or None if it is none, as the csv module has it."""
    try:
        return next(csv.reader([text.rstrip("\r\n")], strict=True), [""])
    except csv.Error:
        return None


def test_rows_are_split_as_pythons_own_parser_does(show, dice):
    """Quotes, separators and line ends in all places, of which most make no row at all."""
    texts = [
        "".join(dice.choice(signs) for _ in range(dice.randrange(12)))
        for signs in ('",x', '"",,xé\n\r')
        for _ in range(2000)
    ]
    value = Csv(*THREE, drift="rescue")
    found = show(CsvReader(value), [t.encode() for t in texts])
    good = 0
    for text, row in zip(texts, found, strict=True):
        fields = by_python(text)
        if fields is None or len(fields) < 3:
            assert isinstance(row, str), (text, row)
            continue
        good += 1
        more = {str(number): field for number, field in enumerate(fields[3:], 4)}
        assert row[:3] == tuple(field or None for field in fields[:3]), text
        assert json.loads(row[3] or "{}") == more, text
    assert good > 100


TEXTS = [
    ("long", {"5": 5, "-9223372036854775808": -(2**63)}, ("1.5", "x", "9223372036854775808")),
    ("int", {"7": 7}, ("2147483648", "1e3")),
    ("double", {"1.5": 1.5, "-1e3": -1000.0}, ("NaN", "Infinity", "1d", "1e999", "0x1p3")),
    ("float", {"0.5": 0.5}, ("1e39", "NaN")),
    ("boolean", {"true": True, "FALSE": False}, ("1", "yes")),
    ("decimal(6,2)", {"12.345": Decimal("12.35")}, ("12345.6", "dear")),
    ("date", {"2019-10-01": NOON.date()}, ("2019", "2019-13-01", "0001-01-01")),
    ("timestamp", {"2019-10-01T12:00:00Z": NOON}, ("12:30", "2019-10-01", "soon")),
    (
        "time",
        {"2019-10-01 12:00:00 UTC": NOON, "1569931200000": NOON},
        ("12:30", "1569931200000000", "2019-10"),
    ),
    ("binary", {"aGk=": b"hi"}, ("?",)),
]


def test_texts_get_the_types_of_their_fields_or_a_reason(show):
    """Each text in a row that is empty elsewhere."""
    fields = [Field(f"f{number}", type) for number, (type, _, _) in enumerate(TEXTS)]

    def alone(number, content, nothing):
        return [content if number == other else nothing for other in range(len(fields))]

    values, expected = [], []
    for number, (type, good, bad) in enumerate(TEXTS):
        for text in (*good, *bad):
            values.append(",".join(alone(number, text, "")).encode())
            reason = f"f{number} is no {type}: {text}"
            row = (*alone(number, good.get(text), None), None)
            expected.append(row if text in good else reason)
    assert show(csv_reader(*fields), values) == expected


STRICT = [  # and what Spark would have made of it
    ("decimal(12,2)", {"2": Decimal(2), '"1.50"': Decimal("1.50")}, ['"1,50"']),  # 150
    ("date", {'"2019-10-01"': NOON.date()}, ['"2019"', '"12"', '"2019-10-01 x"', "18170"]),  # days
    (
        "timestamp",
        {'"2019-10-01T12:00:00Z"': NOON, "1569931200": NOON},
        ['"12:30"', '"2019"', "1569931200000", "1734091756578839"],  # today, and the year 5069
    ),
    ("double", {"1e3": 1000.0}, ["1e999", "-1e999"]),  # infinity
    ("float", {"0.5": 0.5}, ["1e39"]),
]


@pytest.mark.parametrize("drift", ["rescue", "freeze"])
def test_json_is_read_as_strictly_as_text(show, drift):
    fields = [Field(f"f{number}", type) for number, (type, _, _) in enumerate(STRICT)]
    read = JsonReader(Json(Field("name"), *fields, drift=drift))
    for number, (type, good, bad) in enumerate(STRICT):
        values = [f'{{"name": "a, b", "f{number}": {text}}}'.encode() for text in (*good, *bad)]
        found = show(read, values)
        rows = [row[1 + number] for row in found[: len(good)]]
        assert rows == list(good.values())
        for text, reason in zip(bad, found[len(good) :], strict=True):
            assert str(reason).startswith(f"f{number} is no {type}: "), text


def csv_reader(*fields, **options):
    return CsvReader(Csv(*fields, **options))


def test_what_is_wrong_with_a_row_is_said(show):
    read = csv_reader(Field("a", required=True), Field("n", "long", required=True), separator="|")
    cases = {
        b"x|1": ("x", 1, None),
        b'"x|""y""\r\nz"|1\r\n': ('x|"y"\r\nz', 1, None),
        b"x|one": "n is no long: one",
        b'x|"' + b"9" * 200 + b'"': "n is no long: " + "9" * 100,
        b"x": "the row has 1 fields, not 2",
        b"x|1|": "the row has 3 fields, not 2",
        b"|1": "a is empty",
        b'""|1': "a is empty",
        b"x|": "n is empty",
        b'"x|1': "a quote is misplaced or has no end",
        b'"x"y|1': "a quote is misplaced or has no end",
        b"x|1\ny|2": "the value has more than one row",
        b'"' + b"|" * 500_000: "the row has quotes and more than 10,000 separators",
        b"\xff|1": "the value is not UTF-8",
        None: "the value is null",
    }
    assert show(read, list(cases)) == list(cases.values())


# --- Avro ---


@pytest.fixture
def registry():
    fake = FakeRegistry()
    yield fake
    fake.stop()


def record(*fields, name="shop.Click"):
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name, type, **more):
    return {"name": name, "type": type, **more}


def encoded(number, schema, *values):
    def one(value):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
        return wire_header(number) + body.getvalue()

    return [one(value) for value in values]


def avro_reader(registry, *fields, **options):
    return AvroReader(Avro(*fields, **options), ("clicks",), Registry(registry.url))


KIND = {"type": "enum", "name": "Kind", "symbols": ["VIEW", "CART"]}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
MOMENT = datetime(2019, 10, 1, 12, tzinfo=UTC)


INTS = {"type": "array", "items": "int"}
CASES = [
    (MILLIS, "time", MOMENT, NOON),
    (MICROS, "time", MOMENT, NOON),
    (MILLIS, "timestamp", MOMENT, NOON),
    ("long", "time", 1569931200000, NOON),
    ("long", "time", 2**60, "{} is no time: 1152921504606846976"),
    ({"type": "int", "logicalType": "date"}, "date", NOON.date(), NOON.date()),
    (PRICE, "decimal(12,2)", Decimal("1.25"), Decimal("1.25")),
    (PRICE, "decimal(3,1)", Decimal("100.25"), "{} is no decimal(3,1): 100.25"),
    ("double", "decimal(12,2)", 489.07, Decimal("489.07")),
    ("double", "decimal(12,2)", float("nan"), "{} is no decimal(12,2): NaN"),
    ("double", "float", 1e300, "{} is no float: 1.0E300"),
    ("long", "int", 2**31, "{} is no int: 2147483648"),
    ("int", "long", 7, 7),
    ("double", "long", 1.0, "{} is double in schema {}, not long"),
    (KIND, "string", "CART", "CART"),
    ("string", "long", "12", 12),
    ("string", "long", "a dozen", "{} is no long: a dozen"),
    ("bytes", "binary", b"\xff", b"\xff"),
    ("boolean", "boolean", True, True),
    (INTS, "string", [1, 2], "[1,2]"),
    (INTS, "long", [1], "{} is array<int> in schema {}, not long"),
    (["null", KIND], "string", None, None),
    ("null", "long", None, None),
]


def test_what_avro_has_gets_the_types_of_fields_or_a_reason(show, registry):
    """A schema for each case, all in one batch."""
    fields, values, expected = [], [], []
    for n, (type, declared, given, result) in enumerate(CASES):
        name = f"x{n}"
        schema = record(field(name, type))
        number = registry.add(schema)
        fields.append(Field(name, declared))
        values += encoded(number, schema, {name: given})
        if isinstance(result, str) and "{}" in result:
            expected.append(result.format(name, number))
        else:
            expected.append((*(result if n == m else None for m in range(len(CASES))), None))
    assert show(avro_reader(registry, *fields), values) == expected


FULL = record(
    field("page", "string"),
    field("n", ["null", "long"], default=None),
    field("N", "int"),
    field("kind", KIND),
    field("tags", {"type": "array", "items": "Kind"}),
    field("before", ["null", "Kind"]),
)
CLICK = {"page": "a", "n": None, "N": 3, "kind": "VIEW", "tags": ["CART"], "before": None}
RESCUED = '{"N":"3","kind":"VIEW","tags":"[\\"CART\\"]"}'


@pytest.mark.parametrize(
    ("drift", "expected"),
    [
        ("rescue", ("a", None, RESCUED)),
        ("freeze", "schema 1 has unknown fields: N, kind, tags, before"),
    ],
)
def test_fields_that_nobody_declared(show, registry, drift, expected):
    """Names that differ in case only, and types that another field defines."""
    values = encoded(registry.add(FULL), FULL, CLICK)
    read = avro_reader(registry, Field("page"), Field("n", "long"), drift=drift)
    assert show(read, values) == [expected]


def test_bytes_that_are_no_record_are_told_from_those_that_are(show, registry):
    (good,) = encoded(registry.add(FULL), FULL, CLICK)
    loop = record(field("next", ["null", "shop.Click"]))
    ids = {"loop": registry.add(loop), "text": registry.add("message A {}", "PROTOBUF")}
    ids["long"] = registry.add({"type": "long"})
    two_gigabytes = b"\xfe\xff\xff\xff\x0f"
    damaged = "the body ends too early, or is damaged"
    cases = {
        good: ("a", RESCUED),
        b"\x01" + good[1:]: "the first byte is 0x01, Avro values begin with 0x00",
        good[:4]: "too short for Avro: bytes 4",
        **{good[:length]: damaged for length in range(5, len(good))},
        good + b"\x00": "something follows the record, or it is damaged",
        good + good: "something follows the record, or it is damaged",
        good[:5] + two_gigabytes + good[6:]: damaged,
        b"\x00\x00\x00\x03\xe7" + good[5:]: "the registry knows no schema with the id 999",
        b"\x00\xff\xff\xff\xff": "the registry knows no schema with the id 4294967295",
        wire_header(ids["loop"]): "schema 2 contains itself, which Spark cannot read",
        wire_header(ids["text"]): "schema 3 is of type PROTOBUF, not Avro",
        wire_header(ids["long"]): "schema 4 is of type long, not a record",
        None: "the value is null",
    }
    read = avro_reader(registry, Field("page"))
    assert show(read, list(cases)) == list(cases.values())


def test_schemas_are_asked_for_once_and_defaults_are_those_of_the_newest(show, registry):
    """What an old schema lacks has the default of the topic's newest, as soon as it is met."""
    one, two = field("page", "string"), field("colour", ["null", KIND], default=None)
    old, new = record(one), record(one, field("size", "long", default=7), two)
    read = avro_reader(registry, Field("page"), Field("size", "long", required=True))
    known = Registry(registry.url)
    first = known.register("clicks-value", old).id
    values = encoded(first, old, {"page": "a"})
    registry.requests.clear()
    assert show(read, values) == ["size is missing or null"]
    assert show(read, values) == ["size is missing or null"]
    asked = f"GET /schemas/ids/{first}"
    assert registry.requests.count(asked) == 1
    second = known.register("clicks-value", new).id
    both = [*values, *encoded(second, new, {"page": "b", "size": 8, "colour": "CART"})]
    assert show(read, both) == [("a", 7, None), ("b", 8, '{"colour":"CART"}')]
    assert registry.requests.count(asked) == 1
    registry.stop()
    assert show(read, both) == [("a", 7, None), ("b", 8, '{"colour":"CART"}')]


def test_the_newest_schemas_of_all_topics_are_known_from_the_start(spark, registry):
    """Expressions are made once, and again when a schema is learned that was strange."""
    schema, newer = record(field("page", "string")), record(field("n", "long"))
    number = Registry(registry.url).register("clicks-value", schema).id
    topics = ("has-no-schema", "clicks")
    read = AvroReader(Avro(Field("page"), Field("n", "long")), topics, Registry(registry.url))
    values = encoded(number, schema, {"page": "a"})
    new = registry.add(newer)
    values += encoded(new, newer, {"n": 1})
    records = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)

    def strange():
        found = read(records)
        return [row[0] for row in found.rows.select(found.strange).collect()]

    assert strange() == [None, new]
    before = read(records).columns
    assert not read.learn([999, 2**32 - 1], spark)
    assert read(records).columns is before
    assert read.learn([new, 999], spark)
    assert strange() == [None, None]
    assert read(records).columns is read(records).columns is not before


def test_a_registry_that_is_gone_or_refuses_makes_no_dead_letters(show, registry):
    number = registry.add(FULL)
    values = encoded(number, FULL, CLICK)
    read = avro_reader(registry, Field("page"))
    registry.fault = (503, {"message": "later"})
    with pytest.raises(RegistryUnreachable):
        show(read, values)
    registry.fault = (404, b"no registry at all")
    with pytest.raises(RegistryError, match="there is no registry"):
        show(read, values)
    registry.fault = None
    assert show(read, values) == [("a", RESCUED)]
