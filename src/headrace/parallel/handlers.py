"""What a handler takes, read from its signature, and the call that gives it that.

def handle(value)                      async def handle(value)
def handle(value, record: Record)      def handle(values: list)              with batch=...
                                       def handle(values, records)           with batch=...
"""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from headrace.clients.reader import to_record
from headrace.errors import ConfigError
from headrace.serde import Bytes, Json, Serde, Text
from headrace.serde.base import Field

Handler = Callable[..., Any]


@dataclass(frozen=True)
class Signature:
    """How a handler is called."""

    name: str
    is_async: bool
    wants_record: bool
    value_type: Any = None  # of the first parameter, of its items if there is a batch


def read_signature(handler: Handler, *, batch: bool) -> Signature:
    """Look at a handler; one that cannot be called with a value is refused."""
    name = getattr(handler, "__qualname__", repr(handler))
    if not callable(handler):
        raise ConfigError(f"{name} is no function", hint="decorate a function")
    parameters = [
        parameter
        for parameter in inspect.signature(handler).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if by_name := [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]:
        raise ConfigError(
            f"the handler {name} takes {', '.join(by_name)} by name only",
            hint="give it a default: a handler is called with what was read, and nothing else",
            handler=name,
        )
    if len(parameters) not in (1, 2):
        takes = "(values) or (values, records)" if batch else "(value) or (value, record)"
        raise ConfigError(
            f"the handler {name} takes {len(parameters)} arguments",
            hint=f"a handler takes {takes}",
            handler=name,
        )
    call = getattr(handler, "__call__", None)  # noqa: B004 (an object with an async __call__)
    if any(map(_is_generator, (handler, call))):
        raise ConfigError(
            f"the handler {name} is a generator: calling it would do nothing",
            hint="leave `yield` out of it",
            handler=name,
        )
    return Signature(
        name=name,
        is_async=inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call),
        wants_record=len(parameters) == 2,
        value_type=_value_type(handler, parameters[0].name, batch),
    )


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def refuse_undone(returned: object) -> None:
    """What a plain handler returned must not be work that is still to be done.

    A decorator may hide from `read_signature` that a handler is async, or a generator. Other things
    can be awaited too, and have begun: a `Delivery`, say.
    """
    undone = (inspect.iscoroutine, asyncio.isfuture, inspect.isgenerator, inspect.isasyncgen)
    if not any(is_such(returned) for is_such in undone):
        return
    if inspect.iscoroutine(returned):
        returned.close()  # else Python warns that nobody has awaited it
    raise ConfigError(
        f"the handler returned a {type(returned).__name__}, so nothing was handled yet",
        hint="is it async behind a decorator that is not? Make the decorator's function async, or "
        "mark it with inspect.markcoroutinefunction",
    )


def _value_type(handler: Handler, parameter: str, batch: bool) -> Any:
    try:
        hint = get_type_hints(handler).get(parameter)
    except (NameError, TypeError):  # a name only a type checker knows, or a callable object
        return None
    if not batch:
        return hint
    items = get_args(hint)
    return items[0] if len(items) == 1 else None


def serde_for(value_type: Any) -> Serde[Any]:
    """The serde that a type hint asks for: bytes, text, or JSON of that type."""
    if value_type in (None, Any, bytes, bytes | None, inspect.Parameter.empty):
        return Bytes()
    if value_type in (str, str | None):
        return Text()
    return Json(value_type)


class Decoder:
    """A message's value by a serde; where exactly it failed is looked up only if it did."""

    __slots__ = ("_fields", "_plain", "_serde")

    def __init__(self, serde: Serde[Any]) -> None:
        self._serde = serde
        self._plain = type(serde) is Bytes
        self._fields: dict[str, Field] = {}

    def __call__(self, topic: str, partition: int, offset: int, data: bytes | None) -> Any:
        if data is None or self._plain:
            return data
        field = self._fields.get(topic)
        if field is None:
            field = self._fields[topic] = Field(topic)
        try:
            return self._serde.load(data, field)
        except Exception:
            return self._serde.decode(data, Field(topic, "value", partition, offset))


def call_for(
    handler: Handler, signature: Signature, serde: Serde[Any], *, batch: bool
) -> Callable[[Any], Any]:
    """The function that runs a unit (see `engine/desk.py`): decode, then call the handler.

    Of an async handler it returns what must be awaited.
    """
    value = _decoder_of_messages(serde)
    if not batch and not signature.wants_record and type(serde) is Bytes:
        return lambda unit: handler(unit[3].value())
    if not batch:
        if signature.wants_record:
            return lambda unit: handler(value(unit[3]), to_record(unit[3]))
        return lambda unit: handler(value(unit[3]))
    if signature.wants_record:
        return lambda unit: handler(
            [value(task[3]) for task in unit[1]], [to_record(task[3]) for task in unit[1]]
        )
    return lambda unit: handler([value(task[3]) for task in unit[1]])


def _decoder_of_messages(serde: Serde[Any]) -> Callable[[Any], Any]:
    if type(serde) is Bytes:
        return lambda message: message.value()
    decode = Decoder(serde)
    return lambda message: decode(
        message.topic(), message.partition(), message.offset(), message.value()
    )
