"""A serde is two functions; null, errors and where they happened are the same for all."""

import pickle

import pytest

from headrace.errors import (
    DecodeFailed,
    EncodeFailed,
    HeadraceError,
    OperationFailed,
    RegistryError,
    RegistryUnreachable,
    SerdeError,
    Unreachable,
)
from headrace.serde import Bytes, Double, Field, Int, Json, Long, Serde, Text

AT = Field("clicks", "value", 3, 42)


class Point(Serde[tuple[int, int]]):
    """The example of the docs."""

    def dump(self, value, field):
        return f"{value[0]},{value[1]}".encode()

    def load(self, data, field):
        x, y = data.decode().split(",")
        return int(x), int(y)


class Broken(Serde[object]):
    def __init__(self, error):
        self._error = error

    def dump(self, value, field):
        raise self._error

    def load(self, data, field):
        raise self._error


def test_a_serde_of_ones_own_takes_two_functions():
    assert Point().encode((1, -2), AT) == b"1,-2"
    assert Point().decode(b"1,-2", AT) == (1, -2)
    with pytest.raises(DecodeFailed, match=r"the value of clicks\[3\]@42 cannot be decoded"):
        Point().decode(b"1;2", AT)


@pytest.mark.parametrize(
    "serde", [Text(), Bytes(), Int(), Long(), Double(), Json(), Json(list[int]), Point()], ids=repr
)
def test_none_is_null_both_ways(serde):
    assert serde.encode(None, AT) is None
    assert serde.decode(None, AT) is None


def test_a_decoding_error_carries_topic_partition_offset_and_first_bytes():
    data = bytes(range(256))
    with pytest.raises(DecodeFailed) as caught:
        Int().decode(data, AT)
    facts = caught.value.facts
    assert (facts["topic"], facts["part"], facts["partition"], facts["offset"]) == (
        *("clicks", "value"),
        *(3, 42),
    )
    assert facts["first_bytes"] == "00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f"
    assert facts["length"] == 256
    assert "clicks[3]@42" in caught.value.message
    assert "00 01 02" in caught.value.message
    assert caught.value.hint


def test_an_encoding_error_carries_topic_and_part():
    with pytest.raises(EncodeFailed) as caught:
        Int().encode("seven", Field("clicks", "key"))
    assert caught.value.facts["topic"] == "clicks"
    assert caught.value.facts["part"] == "key"
    assert caught.value.message.startswith("the key of clicks cannot be encoded: ")


def test_serde_errors_cross_processes():
    with pytest.raises(DecodeFailed) as caught:
        Int().decode(b"x", AT)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.message, copy.facts) == (caught.value.message, caught.value.facts)


@pytest.mark.parametrize(
    "error",
    [ValueError("two\nlines"), KeyError("x"), ZeroDivisionError(), MemoryError(), RecursionError()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_serde_raises_becomes_one_line_of_a_serde_error(error):
    with pytest.raises(EncodeFailed) as encoding:
        Broken(error).encode("x", AT)
    with pytest.raises(DecodeFailed) as decoding:
        Broken(error).decode(b"x", AT)
    for caught in (encoding, decoding):
        assert "\n" not in caught.value.message
        assert caught.value.facts["reason"]
        assert caught.value.__cause__ is error


def test_a_registry_that_is_away_is_not_the_bytes_fault():
    for call in (lambda s: s.encode("x", AT), lambda s: s.decode(b"x", AT)):
        with pytest.raises(RegistryUnreachable):
            call(Broken(RegistryUnreachable("away")))


def test_an_interrupt_is_not_swallowed():
    with pytest.raises(KeyboardInterrupt):
        Broken(KeyboardInterrupt()).decode(b"x", AT)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (Field("t"), "the value of t"),
        (Field("t", "key"), "the key of t"),
        (Field("t", "key", 0), "the key of t[0]"),
        (Field("t", "value", 0, 0), "the value of t[0]@0"),
    ],
)
def test_a_field_says_what_is_known_of_the_place(field, text):
    assert str(field) == text


def test_only_errors_that_pass_by_themselves_are_retryable():
    assert RegistryUnreachable.retryable
    assert Unreachable.retryable
    assert not any(each.retryable for each in (HeadraceError, SerdeError, RegistryError))
    assert issubclass(SerdeError, OperationFailed)
    assert issubclass(RegistryError, OperationFailed)
