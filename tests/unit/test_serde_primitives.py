"""Text, bytes and numbers: the bytes of Java's serializers, exact ranges, clear refusals."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DecodeFailed, EncodeFailed
from headrace.serde import Bytes, Double, Field, Int, Long, Text
from support.decoding import decode_or_refuse

AT = Field("t", "value", 0, 1)
NUMBERS = (Int(), Long(), Double())


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (Text(), "", ""),
        (Text(), "grüße ☂", "6772c3bcc39f6520e29882"),
        (Bytes(), b"\x00\xff", "00ff"),
        (Int(), 0, "00000000"),
        (Int(), -1, "ffffffff"),
        (Int(), 2**31 - 1, "7fffffff"),
        (Int(), -(2**31), "80000000"),
        (Long(), 1, "0000000000000001"),
        (Long(), -(2**63), "8000000000000000"),
        (Double(), 1.0, "3ff0000000000000"),
        (Double(), -0.0, "8000000000000000"),
        (Double(), math.inf, "7ff0000000000000"),
    ],
)
def test_bytes_are_those_of_the_java_serializers(serde, value, data):
    assert serde.encode(value, AT) == bytes.fromhex(data)
    assert serde.decode(bytes.fromhex(data), AT) == value


@given(st.text())
def test_text_comes_back(value):
    assert Text().decode(Text().encode(value, AT), AT) == value


@given(st.binary())
def test_bytes_come_back(value):
    assert Bytes().decode(Bytes().encode(value, AT), AT) == value


@given(st.integers(-(2**31), 2**31 - 1))
def test_ints_come_back(value):
    assert Int().encode(value, AT) == struct.pack(">i", value)
    assert Int().decode(Int().encode(value, AT), AT) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_longs_come_back(value):
    assert Long().encode(value, AT) == struct.pack(">q", value)
    assert Long().decode(Long().encode(value, AT), AT) == value


@given(st.floats())
def test_doubles_come_back(value):
    found = Double().decode(Double().encode(value, AT), AT)
    assert found == value or (math.isnan(found) and math.isnan(value))


@given(st.binary(max_size=12))
def test_any_bytes_are_a_value_or_a_decoding_error(data):
    for serde in (Text(), Bytes(), *NUMBERS):
        decode_or_refuse(serde, data, AT)


@given(st.integers(min_value=2**63) | st.integers(max_value=-(2**63) - 1))
def test_a_number_out_of_range_is_refused_with_the_range(value):
    with pytest.raises(EncodeFailed, match="does not fit 32 bits"):
        Int().encode(value, AT)
    with pytest.raises(EncodeFailed, match="does not fit 64 bits"):
        Long().encode(value, AT)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_the_range_of_32_bits_ends_where_it_should(value):
    with pytest.raises(EncodeFailed, match=rf"{value} does not fit 32 bits \(-2\^31 to 2\^31-1\)"):
        Int().encode(value, AT)
    assert Long().decode(Long().encode(value, AT), AT) == value


@pytest.mark.parametrize(
    ("serde", "value", "complaint"),
    [
        (Text(), b"x", "text is needed, not bytes"),
        (Text(), 5, "text is needed, not int"),
        (Text(), "\ud800", "not valid Unicode at character 0"),
        (Bytes(), "x", "bytes is needed, not str"),
        (Bytes(), 5, "bytes is needed, not int"),
        (Int(), "5", "a whole number is needed, not str"),
        (Int(), 5.0, "a whole number is needed, not float"),
        (Long(), True, "a whole number is needed, not bool"),
        (Double(), "5", "a number is needed, not str"),
        (Double(), True, "a number is needed, not bool"),
        (Double(), 2**53 + 1, "has no exact double"),
        (Double(), 10**400, "does not fit a double"),
    ],
)
def test_a_value_of_another_kind_is_refused(serde, value, complaint):
    with pytest.raises(EncodeFailed, match=complaint):
        serde.encode(value, AT)


@pytest.mark.parametrize(
    ("serde", "data", "complaint"),
    [
        (Int(), b"123", "4 bytes are needed, there are 3"),
        (Int(), b"12345", "4 bytes are needed, there are 5"),
        (Long(), b"", "8 bytes are needed, there are 0"),
        (Double(), b"1234", "8 bytes are needed, there are 4"),
        (Text(), b"ab\xff", "not valid UTF-8 at byte 2"),
        (Text(), b"\xed\xa0\x80", "not valid UTF-8 at byte 0"),
    ],
)
def test_bytes_of_another_kind_are_refused(serde, data, complaint):
    with pytest.raises(DecodeFailed, match=complaint):
        serde.decode(data, AT)


def test_a_number_too_long_to_be_written_out_is_refused_all_the_same():
    with pytest.raises(EncodeFailed, match="a number of 16,610 bits does not fit 64 bits"):
        Long().encode(10**5000, AT)


def test_buffers_are_bytes_too():
    assert Bytes().encode(bytearray(b"ab"), AT) == b"ab"
    assert type(Bytes().encode(memoryview(b"ab"), AT)) is bytes
    assert Double().decode(Double().encode(3, AT), AT) == 3.0
