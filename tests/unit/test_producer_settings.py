"""Profiles and contradictions: everything that can be known before a producer is made."""

import pytest

from headrace.config.producer_settings import PROFILES, producer_settings
from headrace.errors import ConfigError


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_is_idempotent_and_waits_for_all_copies(profile):
    settings = producer_settings(profile, {}, "id-1" if profile == "exactly-once" else None)
    assert settings["enable.idempotence"] is True
    assert settings["acks"] == "all"
    assert settings["partitioner"] == "murmur2_random"


def test_what_the_user_gives_stands_over_the_profile():
    assert producer_settings("durable", {"linger.ms": 50})["linger.ms"] == 50


def test_an_alias_stands_over_the_profile_too():
    settings = producer_settings("durable", {"queue.buffering.max.ms": 50})
    assert settings["linger.ms"] == 50
    assert "queue.buffering.max.ms" not in settings


def test_an_unknown_profile_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match="'fast'") as caught:
        producer_settings("fast", {})
    assert all(profile in caught.value.hint for profile in PROFILES)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"acks": 1}, ("enable.idempotence=true", "acks=1")),
        ({"request.required.acks": 0}, ("enable.idempotence=true", "acks=0")),
        ({"max.in.flight": 6}, ("enable.idempotence=true", "max.in.flight=6")),
        ({"retries": 0}, ("enable.idempotence=true", "retries=0")),
        (
            {"transactional.id": "t", "enable.idempotence": "false"},
            ("transactional.id=t", "enable.idempotence=false"),
        ),
        ({"acks": 1, "request.required.acks": 0}, ("acks", "1", "0")),
    ],
)
def test_a_contradiction_is_named_with_both_values(given, named):
    with pytest.raises(ConfigError) as caught:
        producer_settings("durable", given)
    assert all(word in caught.value.message for word in named)


def test_acks_1_is_fine_without_idempotence():
    settings = producer_settings("durable", {"acks": 1, "enable.idempotence": False})
    assert settings["acks"] == 1


def test_exactly_once_needs_a_transactional_id():
    with pytest.raises(ConfigError, match="transactional id"):
        producer_settings("exactly-once", {})
    assert producer_settings("exactly-once", {}, "shop-1")["transactional.id"] == "shop-1"
