"""A schema registry on 127.0.0.1: real HTTP, the few endpoints of the Confluent protocol in use."""

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, Any]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class FakeRegistry:
    """Keeps schemas as a registry does; `objections`, `fault` and `password` make it difficult."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []  # the id is the place, from 1
        self.versions: dict[str, list[int]] = {}
        self.levels: dict[str, str] = {}
        self.objections: list[str] = []  # why it takes no further version of a known subject
        self.fault: Answer | None = None
        self.password: tuple[str, str] | None = None
        self.requests: list[str] = []
        self.hold = threading.Event()  # while it is clear, nothing is answered
        self.hold.set()
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Serve, on the same port as before."""
        self._server = _Server(("127.0.0.1", self._port), self._handler())
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Gone: connections are refused."""
        self.hold.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def add(self, schema: Any, type_: str = "AVRO", references: Any = ()) -> int:
        """A schema by id alone."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas.append({"schema": text, "schemaType": type_, "references": list(references)})
        return len(self.schemas)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                registry._respond(self)

            do_GET = do_POST = do_PUT = answer  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def _respond(self, request: BaseHTTPRequestHandler) -> None:
        self.hold.wait()
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length) or b"null")
        path = urlsplit(request.path).path
        self.requests.append(f"{request.command} {unquote(path)}")
        status, document = self._judge(request, path, body)
        answer = document if isinstance(document, bytes) else json.dumps(document).encode()
        with contextlib.suppress(OSError):  # who asked may have given up
            request.send_response(status)
            request.send_header("Content-Length", str(len(answer)))
            request.end_headers()
            request.wfile.write(answer)

    def _judge(self, request: BaseHTTPRequestHandler, path: str, body: Any) -> Answer:
        if self.fault is not None:
            return self.fault
        if self.password is not None:
            token = base64.b64encode(":".join(self.password).encode()).decode()
            if request.headers.get("Authorization") != f"Basic {token}":
                return 401, {"error_code": 401, "message": "Unauthorized"}
        for pattern, handle in self._routes():
            if found := re.fullmatch(f"{request.command} {pattern}", f"{request.command} {path}"):
                return handle(body, *map(unquote, found.groups()))
        return 404, b"<html>nothing here</html>"

    def _routes(self) -> list[tuple[str, Callable[..., Answer]]]:
        return [
            ("/subjects", lambda body: (200, sorted(self.versions))),
            (r"/schemas/ids/(-?\d+)", self._by_id),
            (r"/subjects/([^/]+)/versions", self._versions),
            (r"/subjects/([^/]+)/versions/(\w+)", self._version),
            (r"/subjects/([^/]+)", self._lookup),
            (r"/compatibility/subjects/([^/]+)/versions", self._check),
            (r"/config/?([^/]*)", self._config),
        ]

    def _by_id(self, body: Any, number: str) -> Answer:
        if not 1 <= int(number) <= len(self.schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found."}
        return 200, self.schemas[int(number) - 1]

    def _versions(self, body: Any, subject: str) -> Answer:
        known = self.versions.get(subject)
        if body is None:
            return (200, list(range(1, len(known) + 1))) if known else _no_subject(subject)
        found = self._find(body["schema"])
        if known and found not in known and self.objections:
            text = "Schema being registered is incompatible with an earlier schema"
            return 409, {"error_code": 409, "message": f"{text}: {self.objections}"}
        number = found or self.add(body["schema"])
        if number not in self.versions.setdefault(subject, []):
            self.versions[subject].append(number)
        return 200, {"id": number}

    def _version(self, body: Any, subject: str, version: str) -> Answer:
        known = self.versions.get(subject)
        if not known:
            return _no_subject(subject)
        wanted = len(known) if version == "latest" else int(version)
        if wanted > len(known):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        return 200, self._entry(subject, wanted)

    def _lookup(self, body: Any, subject: str) -> Answer:
        found = self._find(body["schema"])
        if found in self.versions.get(subject, []):
            return 200, self._entry(subject, self.versions[subject].index(found) + 1)
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _check(self, body: Any, subject: str) -> Answer:
        if subject not in self.versions:
            return _no_subject(subject)
        fine = not self.objections
        return 200, {"is_compatible": fine, "messages": self.objections}

    def _config(self, body: Any, subject: str) -> Answer:
        self.levels[subject] = body["compatibility"]
        return 200, body

    def _find(self, text: str) -> int:
        """The id of a schema, 0 if it is new."""
        texts = [schema["schema"] for schema in self.schemas]
        return texts.index(text) + 1 if text in texts else 0

    def _entry(self, subject: str, version: int) -> dict[str, Any]:
        number = self.versions[subject][version - 1]
        about = {"subject": subject, "version": version, "id": number}
        return about | self.schemas[number - 1]


def _no_subject(subject: str) -> Answer:
    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
