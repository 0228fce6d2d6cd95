"""Addresses of databases: what they name, and that their passwords stay hidden."""

from pathlib import Path

import pytest

from headrace.errors import BadInput, ConfigError
from headrace.spark.database.addresses import Address


@pytest.mark.parametrize(
    ("url", "bare", "password", "name"),
    [
        ("postgresql://ann:secret@db:5433/shop", "postgresql://ann@db:5433/shop", "secret", "shop"),
        ("postgres://ann@db/shop", "postgres://ann@db/shop", None, "shop"),
        ("postgresql://ann:a%40b@[::1]/shop", "postgresql://ann@[::1]/shop", "a@b", "shop"),
        (
            "postgresql:///shop?host=/tmp/pg&password=secret",
            "postgresql:///shop?host=/tmp/pg",
            "secret",
            "shop",
        ),
        ("postgresql://ann:@/shop?host=/tmp", "postgresql://ann@/shop?host=/tmp", None, "shop"),
    ],
)
def test_a_password_is_taken_out_of_the_address(url, bare, password, name):
    address = Address.parse(url)
    found = address.password.get_secret_value() if address.password else None
    assert (address.url, found, address.name) == (bare, password, name)
    assert "secret" not in f"{address} {address!r}"


def test_a_password_where_others_can_read_it_is_refused_without_being_shown():
    with pytest.raises(ConfigError, match="stands where others can read it") as refusal:
        Address.parse("postgresql://ann:secret@db/shop", may_have_password=False)
    assert "secret" not in refusal.value.message + refusal.value.hint


def test_files_of_sqlite():
    assert Address.parse("sqlite:///shop.db").path == Path("shop.db")
    assert Address.parse("sqlite:////data/my%20shop.db").path == Path("/data/my shop.db")
    assert Address.parse("sqlite:////data/shop.db").name == "shop.db"
    absolute = Address.parse("sqlite:///shop.db").absolute()
    assert absolute.path == Path("shop.db").absolute()
    assert absolute.absolute() == absolute


@pytest.mark.parametrize(
    "url", ["shop.db", "mysql://ann:secret@db/shop", "sqlite://", "sqlite:///", "://", "", "http:x"]
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(BadInput) as refusal:
        Address.parse(url)
    assert "secret" not in refusal.value.message
