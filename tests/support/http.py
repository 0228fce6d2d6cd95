"""HTTP on this machine: text and JSON, and a server that answers as a test wants."""

import contextlib
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
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


@contextlib.contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Have each GET answered; gives the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
