"""The schema registry, by the protocol that Confluent's, Apicurio's and others speak.

A thin layer on confluent-kafka's client that adds what programs need: errors by kind, waits that
end, reasons for a refusal, and no memory of a failure.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from headrace.errors import BadInput, ConfigError, SchemaNotFound
from headrace.serde import registry_client
from headrace.serde.schemas import AvroSchema, load_schema, parse_text

if TYPE_CHECKING:
    from pydantic import SecretStr

T = TypeVar("T")
SECONDS = 3.0
AUTH_VARIABLE = "HEADRACE_REGISTRY_AUTH"
LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)


@dataclass(frozen=True)
class Reference:
    """A type that a schema uses and another subject defines."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class StoredSchema:
    """A schema in the registry; fetched by its id alone it has no subject and no version."""

    id: int
    text: str
    type: str = "AVRO"
    subject: str | None = None
    version: int | None = None
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Whether a schema could follow those of its subject, and why not. `new`: there are none."""

    subject: str
    compatible: bool
    reasons: tuple[str, ...] = ()
    new: bool = False


class Registry:
    """A schema registry.

    >>> registry = Registry("http://localhost:8081", auth=("ada", "secret"))
    >>> registry
    Registry('http://localhost:8081', user='ada')
    >>> registry.register("alerts-value", "alert.avsc").id          # doctest: +SKIP
    1

    Without `auth`, HEADRACE_REGISTRY_AUTH (`user:password`) is used if it is set. Schemas by id
    and ids by schema are kept; failures are not, so a registry that is back is used at once.
    Can be shared by threads.
    """

    _client: Any

    def __init__(
        self,
        url: str,
        auth: "tuple[str, str | SecretStr] | None" = None,
        *,
        timeout: float = SECONDS,
    ) -> None:
        self.url = _checked(url)
        self.timeout = timeout
        self._auth = _given_auth(auth) or _auth_from_environment()
        self._begin()

    # --- schemas ---

    def subjects(self) -> list[str]:
        """The names under which schemas are kept."""
        return sorted(self._ask("listing subjects", self._client.get_subjects))

    def versions(self, subject: str) -> list[int]:
        """The version numbers of a subject."""
        found = self._ask(
            f"listing the versions of {subject}", lambda: self._client.get_versions(subject)
        )
        return sorted(found)

    def get(self, subject: str, version: int | None = None) -> StoredSchema:
        """One version of a subject, the newest if none is given."""

        def fetch() -> Any:
            if version is not None:
                return self._client.get_version(subject, version)
            self._client.clear_latest_caches()  # which would keep what was newest once
            return self._client.get_latest_version(subject)

        which = "the newest version" if version is None else f"version {version}"
        return _stored(self._ask(f"reading {which} of {subject}", fetch))

    def schema(self, number: int) -> StoredSchema:
        """A schema by its id."""
        found = self._by_id.get(number)
        if found is None:
            doing = f"reading schema {number}"
            schema = self._ask(doing, lambda: self._client.get_schema(number))
            found = self._by_id[number] = _stored_as(number, schema)
        return found

    def avro_schema(self, number: int) -> AvroSchema:
        """A schema by its id, ready to read with; types of other subjects included."""
        stored = self.schema(number)
        if stored.type != "AVRO":
            raise BadInput(
                f"schema {number} is of type {stored.type}, not Avro", hint="use another serde"
            )
        return parse_text(stored.text, f"schema {number}", self._referenced(stored, {}))

    def register(self, subject: str, schema: Any) -> StoredSchema:
        """Make a schema the subject's newest version; one that is there already stays as it is."""
        text = load_schema(schema).text
        key = (subject, text)
        if key not in self._registered:
            doing = f"registering a schema for {subject}"
            self._ask(
                doing, lambda: self._client.register_schema(subject, registry_client.avro(text))
            )
            self._registered[key] = self.lookup(subject, schema)
        return self._registered[key]

    def lookup(self, subject: str, schema: Any) -> StoredSchema:
        """The id and version of a schema that is registered already."""
        text = load_schema(schema).text
        found = self._ask(
            f"looking a schema up in {subject}",
            lambda: self._client.lookup_schema(subject, registry_client.avro(text)),
        )
        return _stored(found)

    # --- compatibility ---

    def check(self, subject: str, schema: Any) -> Verdict:
        """Whether the schema could become the subject's next version, by the registry's rules."""
        text = load_schema(schema).text
        try:
            compatible, reasons = self._ask(
                f"checking a schema for {subject}",
                lambda: registry_client.check(self._client, subject, text),
            )
        except SchemaNotFound:
            return Verdict(subject, compatible=True, new=True)
        return Verdict(subject, compatible, reasons)

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the rule that new versions are held to: of a subject, or of all that have none."""
        if level.upper() not in LEVELS:
            raise BadInput(
                f"{level!r} is no compatibility level", hint=f"use {', '.join(LEVELS)}", level=level
            )
        doing = f"setting the compatibility level of {subject or 'the registry'}"
        self._ask(doing, lambda: self._client.set_compatibility(subject, level.upper()))

    def close(self) -> None:
        """Close its connections. It can still be used, and opens new ones then."""
        self._client.close()
        self._client = self._new_client()

    # --- inside ---

    def _begin(self) -> None:
        self._by_id: dict[int, StoredSchema] = {}
        self._registered: dict[tuple[str, str], StoredSchema] = {}
        self._client = self._new_client()

    def _new_client(self) -> Any:
        user = None
        if self._auth is not None:
            user = f"{self._auth[0]}:{self._auth[1].get_secret_value()}"
        return registry_client.make_client(self.url, user, self.timeout)

    def _ask(self, doing: str, question: Callable[[], T]) -> T:
        try:
            return question()
        except Exception as error:
            raise registry_client.translate(error, doing, self.url) from error

    def _referenced(self, schema: StoredSchema, known: dict[str, Any]) -> dict[str, Any]:
        """The types that a schema takes from other subjects, and those take from others again."""
        for reference in schema.references:
            if reference.name in known:
                continue
            stored = self.get(reference.subject, reference.version)
            self._referenced(stored, known)
            what = f"{reference.subject} version {reference.version}"
            known.update(parse_text(stored.text, what, known).named)
        return known

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "timeout": self.timeout, "_auth": self._auth}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()  # connections and what is known of the registry stay where they were

    def __repr__(self) -> str:
        user = f", user={self._auth[0]!r}" if self._auth else ""
        return f"Registry({self.url!r}{user})"


def _checked(url: str) -> str:
    for each in url.split(","):
        parts = urlsplit(each.strip())
        if parts.username is not None or parts.password is not None:
            raise ConfigError(
                "the registry's address contains a user or a password",
                hint=f"leave them out and set {AUTH_VARIABLE}=user:password, or give auth=",
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"{each!r} is no address of a registry",
                hint="write it as http://localhost:8081",
                url=each,
            )
    return url.rstrip("/")


def _given_auth(
    auth: "tuple[str, str | SecretStr] | None",
) -> "tuple[str, SecretStr] | None":
    from pydantic import SecretStr

    if auth is None:
        return None
    user, password = auth
    if ":" in user:
        raise ConfigError("a registry's user cannot contain a colon", hint="give auth=(user, ...)")
    return user, password if isinstance(password, SecretStr) else SecretStr(password)


def _auth_from_environment() -> "tuple[str, SecretStr] | None":
    value = os.environ.get(AUTH_VARIABLE)
    if not value:
        return None
    user, found, password = value.partition(":")
    if not found:
        raise ConfigError(f"{AUTH_VARIABLE} is not user:password", hint="write both, with a colon")
    return _given_auth((user, password))


def _stored(found: Any) -> StoredSchema:
    return _stored_as(found.schema_id, found.schema, found.subject, found.version)


def _stored_as(
    number: int, schema: Any, subject: str | None = None, version: int | None = None
) -> StoredSchema:
    references = tuple(
        Reference(each.name, each.subject, each.version) for each in schema.references or ()
    )
    kind = schema.schema_type or "AVRO"
    return StoredSchema(number, schema.schema_str, kind, subject, version, references)
