"""The address of a database. A password in it is never shown, and never on the command line."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import SecretStr

from headrace.errors import BadInput, ConfigError

Kind = Literal["sqlite", "postgresql"]
EXAMPLES = "sqlite:///shop.db or postgresql://user@host/shop"
_SCHEMES: dict[str, Kind] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
}
_USER_INFO = re.compile(r"(?<=://)[^/?#]*@")


@dataclass(frozen=True)
class Address:
    """Where a database is. `url` has no password in it.

    >>> Address.parse("postgresql://ann:secret@db/shop")
    Address(kind='postgresql', url='postgresql://ann@db/shop', password=SecretStr('**********'))
    >>> print(Address.parse("sqlite:///shop.db"))
    sqlite:///shop.db
    """

    kind: Kind
    url: str
    password: SecretStr | None = None

    @classmethod
    def parse(cls, url: str, *, may_have_password: bool = True) -> Self:
        """`may_have_password` is for places that others cannot see: a variable, a file."""
        scheme = url.partition("://")[0]
        if "://" not in url or scheme not in _SCHEMES:
            raise BadInput(f"{_hidden(url)!r} is no address of a database", hint=EXAMPLES)
        bare, password = url, None
        if _SCHEMES[scheme] == "postgresql":
            bare, password = _without_password(url)
        if password is not None and not may_have_password:
            raise ConfigError(
                f"the password of {bare} stands where others can read it",
                hint="leave it out and set PGPASSWORD, or put the whole address into the variable "
                "HEADRACE_DATABASE",
            )
        found = cls(_SCHEMES[scheme], bare, None if password is None else SecretStr(password))
        if found.kind == "sqlite" and not found.path.name:
            raise BadInput(f"{url!r} names no file", hint="sqlite:///shop.db or sqlite:////abs.db")
        return found

    @property
    def path(self) -> Path:
        """SQLite's file: `sqlite:///shop.db` is in this folder, `sqlite:////shop.db` is not."""
        return Path(unquote(self.url.removeprefix("sqlite://").removeprefix("/")))

    @property
    def name(self) -> str:
        """The database's own name, wherever it is."""
        if self.kind == "sqlite":
            return self.path.name
        return unquote(urlsplit(self.url).path.removeprefix("/"))

    def absolute(self) -> "Address":
        """The same for another process, which may work in another folder."""
        if self.kind != "sqlite":
            return self
        return Address(self.kind, f"sqlite:///{quote(str(self.path.expanduser().absolute()))}")

    def __str__(self) -> str:
        return self.url


def _without_password(url: str) -> tuple[str, str | None]:
    """A password can stand before the host or among the parameters."""
    try:
        parts = urlsplit(url)
        password = None if parts.password is None else unquote(parts.password)
    except ValueError as error:
        raise BadInput(
            f"{_hidden(url)!r} is no address of a database: {error}", hint=EXAMPLES
        ) from error
    user, at, place = parts.netloc.rpartition("@")
    query = parse_qsl(parts.query, keep_blank_values=True)
    given: list[str | None] = [value for name, value in query if name == "password"]
    others = urlencode([pair for pair in query if pair[0] != "password"], safe="/")
    bare = f"{parts.scheme}://{user.partition(':')[0]}{at}{place}{parts.path}"
    return bare + (f"?{others}" if others else ""), (given or [password])[0] or None


def _hidden(url: str) -> str:
    return _USER_INFO.sub("***@", url)
