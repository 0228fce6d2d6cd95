"""What Spark says of a query, in one line."""

import re

from headrace.errors import BadInput, HeadraceError, OperationFailed

# "[CODE] what happened. SQLSTATE: 42703; line 1 pos 7"; the position is of the text Spark was given
_SAID = re.compile(r"\[[A-Z][A-Z0-9_.]{3,}\] [^\n]+")
_TAIL = re.compile(r"\s*(SQLSTATE: \w+)?(\s*;\s*line \d+ pos \d+)?;?\s*$")
_HINTS = {
    "UNRESOLVED_COLUMN": "a topic has key, value, json, topic, partition, offset, timestamp and "
    "headers; fields are json:NAME::TYPE",
    "CAST_INVALID_INPUT": "try_cast(... AS ...) gives null instead",
    "INVALID_VARIANT_CAST": "try_variant_get(json, '$.NAME', 'TYPE') gives null instead",
    "DIVIDE_BY_ZERO": "try_divide gives null instead",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": "only tables that grow can be followed, like a "
    "pipeline's table of rows",
    "STREAMING_OUTPUT_MODE": "ask without --follow",
}


def explained(error: Exception, hint: str = "see Spark's SQL reference") -> BadInput:
    """A query that Spark refuses."""
    said = what_was_said(error)
    return BadInput(said, hint=_hint(said) or hint)


def failed(error: Exception) -> HeadraceError:
    """A query that failed on its way."""
    if isinstance(error, HeadraceError):
        return error
    said = what_was_said(error)
    return OperationFailed(said, hint=_hint(said) or "run again with --debug for all of it")


def what_was_said(error: Exception) -> str:
    """The one line that matters, out of Spark's long tale.

    >>> what_was_said(ValueError("at x\\n[DIVIDE_BY_ZERO] By zero. SQLSTATE: 22012\\nat y"))
    '[DIVIDE_BY_ZERO] By zero.'
    """
    text = str(error)
    found = _SAID.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _TAIL.sub("", found[0] if found else (lines or [type(error).__name__])[0])


def _hint(said: str) -> str | None:
    return next((hint for code, hint in _HINTS.items() if said.startswith(f"[{code}")), None)


def quiet() -> None:
    """PySpark logs each refused query on stderr, with the whole of its trace."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
