"""HTTP on this machine: text, and JSON as the registry and the Connect worker speak it."""

import json
import urllib.request
from typing import Any

# No proxy: this never leaves the machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(address: str, document: Any = None) -> Any:
    """GET, or POST if there is a document to send; returns the answer's."""
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with _direct.open(request, timeout=30) as answer:
        return json.load(answer)


def get(address: str) -> str:
    """A page's text."""
    with _direct.open(address, timeout=30) as answer:
        text: str = answer.read().decode()
        return text
