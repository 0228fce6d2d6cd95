"""JSON: any document, or one checked against a type.

Encoding is orjson. Decoding is pydantic's parser, because integers of any size stay exact there:
orjson reads those beyond 64 bits as floats, without a word.
"""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypeVar, overload

import orjson

from headrace.errors import ConfigError
from headrace.serde.base import Field, Serde

T = TypeVar("T")


class Json(Serde[T]):
    """JSON documents: dicts and lists, or a dataclass, TypedDict or pydantic model.

    >>> Json().encode({"id": 2**60}, Field("t"))
    b'{"id":1152921504606846976}'
    >>> Json(list[int]).decode(b"[1, 2]", Field("t"))
    [1, 2]

    With a type, `decode` checks: a field that is missing or of another type is DecodeFailed. What
    JSON has no word for (NaN, a Decimal without a type that says so) is EncodeFailed, not null.
    """

    @overload
    def __init__(self: "Json[Any]", type_: None = None) -> None: ...
    @overload
    def __init__(self, type_: type[T]) -> None: ...
    def __init__(self, type_: Any = None) -> None:
        self._type = type_
        self._adapter: Any = None if type_ is None else _adapter(type_)

    def dump(self, value: T, field: Field) -> bytes:
        # Plain containers need no schema, and a Decimal in them must not turn into text unasked.
        plain = value if self._type in (None, dict, list) else self._plain(value)
        try:
            data = orjson.dumps(plain, default=_plain_model)
        except TypeError as error:
            raise TypeError(_explain(plain, error)) from error
        if b"null" in data:  # where NaN and the infinities are hidden, too
            _refuse_nan(value)
        return data

    def load(self, data: bytes, field: Field) -> T:
        from pydantic_core import from_json

        if self._type is None or b"NaN" in data or b"Infinity" in data:
            # A typed parse takes NaN for a number; what is no JSON is refused before it.
            try:
                document: T = from_json(data, allow_inf_nan=False)
            except ValueError as error:
                raise ValueError(f"not valid JSON: {error}") from error
            if self._type is None:
                return document
        return self._check(data)

    def _check(self, data: bytes) -> T:
        from pydantic import ValidationError

        try:
            checked: T = self._adapter.validate_json(data)
        except ValidationError as error:
            raise ValueError(_complaints(error)) from error
        return checked

    def _plain(self, value: T) -> Any:
        from pydantic_core import PydanticSerializationError

        try:
            # Warnings as errors: a value of another type would be written as it is.
            return self._adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        except PydanticSerializationError as error:
            raise ValueError(f"not a {_name(self._type)}: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return (Json, (self._type,))

    def __repr__(self) -> str:
        return f"Json({_name(self._type)})" if self._type is not None else "Json()"


def _adapter(type_: Any) -> Any:
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(type_)
    except (PydanticUserError, NameError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"Json cannot use {_name(type_)}: {reason}",
            hint="give a dict, list, dataclass, TypedDict or pydantic model",
        ) from error


def _plain_model(value: Any) -> Any:
    """Called by orjson for what it does not know: a pydantic model, without a type given."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError


def _refuse_nan(document: Any) -> None:
    for path, leaf in _leaves(document, "$"):
        for number in leaf if isinstance(leaf, set | frozenset) else (leaf,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{path} is {number}, which JSON cannot write: use None or text")


def _explain(document: Any, error: TypeError) -> str:
    """Which part of the document orjson meant."""
    for path, leaf in _leaves(document, "$"):
        if isinstance(leaf, Decimal):
            return f"{path} is a Decimal: use str, or Json(T) with a Decimal field"
        try:
            orjson.dumps(leaf, default=_plain_model)
        except TypeError as cause:
            detail = str(cause.__cause__ or cause) or type(leaf).__name__
            return f"{path} is {type(leaf).__name__}: {detail}"
    return str(error)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "model_dump"):
        value = value.model_dump(by_alias=True)
    if isinstance(value, dict):
        for name, below in value.items():
            if not isinstance(name, str):
                yield f"a key of {path}", {name: None}
            else:
                yield from _leaves(below, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for index, below in enumerate(value):
            yield from _leaves(below, f"{path}[{index}]")
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _leaves(getattr(value, name), f"{path}.{name}")
    else:
        yield path, value


def _complaints(error: Any) -> str:
    """pydantic's findings in one line, values left out: they may be secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = []
    for each in found[:3]:
        place = ".".join(str(part) for part in each["loc"])
        lines.append(f"{place}: {each['msg']}" if place else each["msg"])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return "; ".join(lines) + more


def _name(type_: Any) -> str:
    return getattr(type_, "__name__", None) or str(type_)
