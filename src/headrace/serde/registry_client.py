"""confluent-kafka's registry client with limits, and its failures as errors that say what to do.

Two things are not in its public interface and are reached through its REST client: the messages
of a compatibility check, which it drops, and a session without proxies for addresses on this
machine. tests/unit/test_serde_registry.py would notice if they moved.
"""

import json
import re
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

from headrace.errors import (
    HeadraceError,
    IncompatibleSchema,
    RegistryError,
    RegistryUnreachable,
    SchemaNotFound,
)
from headrace.serde.schemas import needs_extra

# Confluent's error codes: no such subject, version, schema; no level of the subject's own.
_NOT_FOUND = (40401, 40402, 40403, 40408)
_LATER = (408, 429, 502, 503, 504)
_APICURIO = "/apis/ccompat/"
_APICURIO_REASONS = re.compile(r"list of diff types: \[(.*)\]", re.DOTALL)


def make_client(url: str, user_and_password: str | None, seconds: float) -> Any:
    """A client that gives up: each try has `seconds`, and there are two."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise needs_extra("the schema registry") from error
    settings: dict[str, Any] = {
        "url": url,
        "timeout": seconds,
        "max.retries": 1,
        "retries.wait.ms": 100,
        "retries.max.wait.ms": 200,
    }
    if user_and_password is not None:
        settings["basic.auth.user.info"] = user_and_password
    client = SchemaRegistryClient(settings)
    if _is_here(url):
        _without_proxy(client)
    return client


def avro(text: str) -> Any:
    """A schema as the client takes it."""
    from confluent_kafka.schema_registry import Schema

    return Schema(text, "AVRO")


def check(client: Any, subject: str, text: str) -> tuple[bool, tuple[str, ...]]:
    """Whether the registry would take this schema for the subject, and what it has against it."""
    answer = client._rest_client.post(
        f"compatibility/subjects/{quote(subject, safe='')}/versions?verbose=true",
        body={"schema": text},
    )
    if answer["is_compatible"]:
        return True, ()
    return False, tuple(answer.get("messages") or _apicurio_reasons(client, subject, text))


def translate(error: Exception, doing: str, url: str) -> HeadraceError:
    """The error to raise for what happened while `doing` something."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    if isinstance(error, SchemaRegistryError):
        return _refusal(error, doing, url)
    if isinstance(error, ValueError | TypeError | KeyError):
        return RegistryError(
            f"{doing} failed: {url} does not answer as a registry does",
            hint="check the address; Apicurio's ends with /apis/ccompat/v7",
            url=url,
        )
    return _unreachable(doing, url, f"{type(error).__name__}: {error}")


def _refusal(error: Any, doing: str, url: str) -> HeadraceError:
    status, code, text = error.http_status_code, error.error_code, error.error_message
    facts = {"url": url, "status": status, "code": code}
    if status == 409 and "ncompatible" in str(text):
        reasons = _reasons(str(text))
        return IncompatibleSchema(
            f"{doing} was refused, the schema is not compatible: {'; '.join(reasons)}",
            hint="give new fields a default and keep the types of old ones, or use a new subject",
            reasons=reasons,
            **facts,
        )
    if code in _NOT_FOUND:
        hint = "see `headrace schema list`"
        return SchemaNotFound(f"{doing} failed: {text}", hint=hint, **facts)
    if status in _LATER:
        return _unreachable(doing, url, f"HTTP status {status}")
    if status in (401, 403):
        return RegistryError(
            f"{doing} was refused: the registry does not accept this user (HTTP status {status})",
            hint="set HEADRACE_REGISTRY_AUTH to user:password, or give auth=(user, password)",
            **facts,
        )
    if status == 404:
        return RegistryError(
            f"{doing} failed: there is no registry at {url} (HTTP status 404)",
            hint="check the address; Apicurio's ends with /apis/ccompat/v7",
            **facts,
        )
    hint = "correct the schema" if status == 422 else "see the registry's log"
    return RegistryError(f"{doing} failed: {text} (HTTP status {status})", hint=hint, **facts)


def _unreachable(doing: str, url: str, cause: str) -> RegistryUnreachable:
    return RegistryUnreachable(
        f"{doing} failed: no answer from the registry at {url} ({' '.join(cause.split())})",
        hint="is it running? `headrace status` tells; the next call tries again by itself",
        url=url,
    )


def _reasons(text: str) -> tuple[str, ...]:
    """Apicurio's list of differences; from others the message as it is."""
    if found := _APICURIO_REASONS.search(text):
        return tuple(found[1].split(", "))
    return (" ".join(text.split()),)


def _apicurio_reasons(client: Any, subject: str, text: str) -> tuple[str, ...]:
    """Apicurio gives its reasons only when it refuses: a dry run of its own protocol does."""
    rest = client._rest_client
    base = rest.base_urls[0]
    if _APICURIO not in base:
        return ()
    response = rest.send_http_request(
        f"{base.partition(_APICURIO)[0]}/apis/registry/v3",
        f"groups/default/artifacts/{quote(subject, safe='')}/versions?dryRun=true",
        "POST",
        {"Content-Type": "application/json"},
        json.dumps({"content": {"content": text, "contentType": "application/json"}}),
    )
    try:
        causes = response.json().get("causes") or ()
        return tuple(f"{cause['description']} at {cause['context']}" for cause in causes)
    except (ValueError, KeyError, AttributeError, TypeError):
        return ()  # another version of Apicurio: no reasons are better than no verdict


def _is_here(url: str) -> bool:
    host = urlsplit(url.partition(",")[0]).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _without_proxy(client: Any) -> None:
    """This never leaves the machine, whatever HTTP_PROXY says."""
    rest = client._rest_client
    rest.session.close()
    rest.session = type(rest.session)(
        verify=rest.verify, auth=rest.auth, timeout=rest.timeout, trust_env=False
    )
