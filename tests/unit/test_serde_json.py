"""JSON: any document, or one that is checked; nothing loses its value on the way, unasked."""

import math
import pickle
import warnings
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic import Field as ModelField
from typing_extensions import TypedDict

from headrace.errors import ConfigError, DecodeFailed, EncodeFailed
from headrace.serde import Field, Json
from support.decoding import decode_or_refuse

AT = Field("t", "value", 0, 7)


class Colour(Enum):
    RED = "red"


@dataclass
class Click:
    id: int
    at: datetime
    price: Decimal = Decimal("0.10")
    tags: list[str] = field(default_factory=list)
    colour: Colour = Colour.RED


class Model(BaseModel):
    id: int
    product: str = ModelField(alias="productId")
    price: Decimal | None = None


class Shape(TypedDict):
    x: int
    name: str


CLICK = Click(2**60, datetime(2019, 10, 1, tzinfo=UTC), Decimal("12345678901234567890.12"), ["a"])
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(DOCUMENTS.filter(lambda document: document is not None))
@example(2**53 + 1)
@example([2**63, -(2**63), 2**64 - 1])
def test_any_document_comes_back(document):
    back = Json().decode(Json().encode(document, AT), AT)
    assert back == document
    assert repr(back) == repr(document)  # 1 and 1.0 are equal, and not the same


@given(st.builds(Click, st.integers(-(2**63), 2**63), st.datetimes(timezones=st.just(UTC))))
def test_a_dataclass_comes_back(click):
    if click.id < 2**63:
        assert Json(Click).decode(Json(Click).encode(click, AT), AT) == click


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Click, CLICK),
        (Model, Model(id=2**53 + 1, productId="p", price=Decimal("1.10"))),
        (Shape, {"x": 1, "name": "n"}),
        (dict[str, int], {"a": 2**60}),
        (list[UUID], [UUID(int=7)]),
        (dict, {"a": [1, None]}),
        (int, 2**60),
    ],
)
def test_a_type_comes_back(type_, value):
    serde = Json(type_)
    assert serde.decode(serde.encode(value, AT), AT) == value
    assert pickle.loads(pickle.dumps(serde)).encode(value, AT) == serde.encode(value, AT)


def test_dataclasses_and_models_need_no_type_to_be_written():
    simple = Json().encode({"click": Model(id=1, productId="p")}, AT)
    assert Json().decode(simple, AT) == {"click": {"id": 1, "productId": "p", "price": None}}
    plain = Click(1, datetime(2019, 10, 1, tzinfo=UTC), 1, [])
    assert Json().decode(Json().encode(plain, AT), AT)["at"] == "2019-10-01T00:00:00+00:00"


@given(st.integers())
@example(10**400)
def test_whole_numbers_of_any_size_are_read_exactly(number):
    assert Json().decode(str(number).encode(), AT) == number
    assert Json(dict[str, int]).decode(f'{{"a": {number}}}'.encode(), AT) == {"a": number}


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_not_written(number):
    with pytest.raises(EncodeFailed, match=r"\$\.a\[1\] is int: Integer exceeds 64-bit range"):
        Json().encode({"a": [0, number]}, AT)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("type_", [None, dict, dict[str, Any]])
def test_nan_is_an_error_and_not_null(number, type_):
    with pytest.raises(EncodeFailed, match=rf"\$\.a\[1\] is {number}, which JSON cannot write"):
        Json(type_).encode({"a": [None, number]}, AT)


def test_nan_is_found_in_dataclasses_and_models():
    class Measured(BaseModel):
        x: float

    for value in (Measured(x=math.nan), {"m": Measured(x=math.nan)}):
        with pytest.raises(EncodeFailed, match="is nan"):
            Json().encode(value, AT)
    with pytest.raises(EncodeFailed, match="is nan"):
        Json(Measured).encode(Measured(x=math.nan), AT)


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"-Infinity", b'{"a": NaN}'])
@pytest.mark.parametrize("type_", [None, float, dict[str, float]])
def test_nan_is_no_json_to_read(text, type_):
    with pytest.raises(DecodeFailed):
        Json(type_).decode(text, AT)


@pytest.mark.parametrize("type_", [None, dict, list])
def test_a_decimal_is_not_turned_into_something_else(type_):
    value = {"price": Decimal("1.10")} if type_ is not list else [Decimal("1.10")]
    with pytest.raises(EncodeFailed, match="is a Decimal: use str, or Json"):
        Json(type_).encode(value, AT)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"a": {1, 2}}, r"\$\.a is set"),
        ({"a": b"x"}, r"\$\.a is bytes"),
        ({1: 2}, "a key of"),
        ({"a": "\ud800"}, r"\$\.a is str: .*surrogates"),
        (object(), r"\$ is object"),
    ],
)
def test_what_json_has_no_word_for_is_named_with_its_place(value, complaint):
    with pytest.raises(EncodeFailed, match=complaint):
        Json().encode(value, AT)


def test_a_value_of_another_type_is_not_written():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for type_, value in ((Click, {"id": 1}), (Model, "x"), (list[int], ["a"]), (int, "5")):
            with pytest.raises(EncodeFailed):
                Json(type_).encode(value, AT)


@pytest.mark.parametrize(
    ("type_", "data", "complaint"),
    [
        (None, b"{", "not valid JSON: EOF"),
        (None, b"", "not valid JSON"),
        (None, b'{"a":1} x', "not valid JSON: trailing"),
        (None, b'"\xff"', "not valid JSON"),
        (None, b"\xff\xfe", "not valid JSON"),
        (None, b"[" * 3000, "recursion limit"),
        (Shape, b"{", "Invalid JSON"),
        (Shape, b'{"x": 1}', "name: Field required"),
        (Shape, b'{"x": "one", "name": "n"}', "x: Input should be a valid integer"),
        (Click, b"[]", "Input should be an object"),
        (list[int], b'["a","b","c","d","e"]', "and 2 more"),
    ],
)
def test_bytes_that_do_not_fit_say_why(type_, data, complaint):
    with pytest.raises(DecodeFailed, match=complaint) as caught:
        Json(type_).decode(data, AT)
    assert caught.value.facts["offset"] == 7


def test_what_was_read_is_not_repeated_in_the_complaint():
    with pytest.raises(DecodeFailed) as caught:
        Json(Shape).decode(b'{"x": "hunter2-is-my-password", "name": "n"}', AT)
    assert "hunter2-is-my-password" not in caught.value.message


@given(
    st.binary()
    | st.text().map(str.encode)
    | DOCUMENTS.map(lambda d: repr(d).encode(errors="replace"))
)
@example(b"9" * 5000)
@example(b"1e999")
def test_any_bytes_are_a_value_or_a_decoding_error(data):
    for serde in (Json(), Json(Click), Json(dict[str, float]), Json(Model)):
        decode_or_refuse(serde, data, AT)


def test_a_serde_is_shown_by_its_type():
    assert repr(Json()) == "Json()"
    assert repr(Json(Click)) == "Json(Click)"


def test_a_type_that_cannot_be_checked_is_refused_when_the_serde_is_made():
    class Opaque:
        pass

    with pytest.raises(ConfigError, match="Json cannot use Opaque"):
        Json(Opaque)
