"""What a serde makes of any bytes at all."""

from typing import Any

from headrace.errors import DecodeFailed
from headrace.serde import Field, Serde


def decode_or_refuse(serde: Serde[Any], data: bytes, at: Field) -> None:
    """Nothing may happen but a value, or a refusal that shows the bytes."""
    refusal = None
    try:
        serde.decode(data, at)
    except DecodeFailed as failed:
        refusal = failed
    assert refusal is None or refusal.facts["first_bytes"] == data[:16].hex(" ")
