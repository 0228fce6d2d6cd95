"""The registry: what it keeps, what it refuses, how it fails, and that it tells no secrets."""

import pickle
import sys
import threading
import time
import traceback

import pytest
from pydantic import SecretStr

from headrace.errors import (
    BadInput,
    ConfigError,
    IncompatibleSchema,
    RegistryError,
    RegistryUnreachable,
    SchemaNotFound,
)
from headrace.serde import Avro, Registry
from support.fake_registry import FakeRegistry

OLD = {"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]}
NEW = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "note", "type": "string", "default": ""}],
}
SECRET = "hunter2"


@pytest.fixture
def fake():
    server = FakeRegistry()
    yield server
    server.stop()


@pytest.fixture
def registry(fake):
    return Registry(fake.url, timeout=30)


def test_schemas_are_registered_and_found_again(registry):
    first = registry.register("alerts-value", OLD)
    second = registry.register("alerts-value", NEW)
    assert (first.id, first.version, second.id, second.version) == (1, 1, 2, 2)
    assert registry.subjects() == ["alerts-value"]
    assert registry.versions("alerts-value") == [1, 2]
    assert registry.get("alerts-value") == second
    assert registry.get("alerts-value", 1) == first
    assert registry.schema(2).text == second.text
    assert registry.lookup("alerts-value", OLD) == first


def test_registering_again_is_harmless(fake, registry):
    once = registry.register("alerts-value", OLD)
    asked = len(fake.requests)
    assert registry.register("alerts-value", OLD) == once
    assert len(fake.requests) == asked
    assert Registry(fake.url).register("alerts-value", OLD) == once


def test_a_schema_by_its_id_is_asked_for_once(fake, registry):
    fake.add(OLD)
    assert [registry.schema(1).id for _ in range(5)] == [1] * 5
    assert fake.requests == ["GET /schemas/ids/1"]


def test_the_newest_version_is_the_newest_of_now(fake, registry):
    registry.register("s", OLD)
    assert registry.get("s").version == 1
    Registry(fake.url).register("s", NEW)
    assert registry.get("s").version == 2


def test_subjects_may_have_any_name(registry):
    name = "a/b c?d=é"
    registry.register(name, OLD)
    assert registry.subjects() == [name]
    assert registry.get(name).subject == name
    assert registry.check(name, NEW).compatible


@pytest.mark.parametrize(
    "ask",
    [
        lambda registry: registry.get("nosuch"),
        lambda registry: registry.get("s", 7),
        lambda registry: registry.versions("nosuch"),
        lambda registry: registry.schema(99),
        lambda registry: registry.lookup("s", NEW),
    ],
)
def test_what_is_not_there_is_schema_not_found(registry, ask):
    registry.register("s", OLD)
    with pytest.raises(SchemaNotFound, match="not found") as caught:
        ask(registry)
    assert caught.value.hint == "see `headrace schema list`"
    assert not caught.value.retryable


# --- compatibility ---


def test_a_check_gives_the_registrys_reasons(fake, registry):
    registry.register("s", OLD)
    assert registry.check("s", NEW).compatible
    fake.objections = ["no default for note", "id changed"]
    verdict = registry.check("s", NEW)
    assert not verdict.compatible
    assert verdict.reasons == ("no default for note", "id changed")
    assert registry.versions("s") == [1]


def test_nothing_stands_against_the_first_schema(fake, registry):
    verdict = registry.check("s", OLD)
    assert (verdict.compatible, verdict.new) == (True, True)
    assert fake.versions == {}


def test_a_refused_schema_carries_the_reasons(fake, registry):
    registry.register("s", OLD)
    fake.objections = ["no default for note"]
    with pytest.raises(IncompatibleSchema) as caught:
        registry.register("s", NEW)
    assert "no default for note" in caught.value.facts["reasons"][0]
    assert caught.value.exit_status == 1


def test_apicurios_list_of_differences_becomes_reasons(fake, registry):
    fake.fault = (
        409,
        {
            "error_code": 409,
            "message": "RuleViolationException: Incompatible artifact: s [AVRO], num of "
            "incompatible diffs: {2}, list of diff types: [reader type: STRING not compatible "
            "with writer type: LONG at /fields/0/type, x at /fields/1]",
        },
    )
    with pytest.raises(IncompatibleSchema) as caught:
        registry.register("s", OLD)
    assert caught.value.facts["reasons"] == (
        "reader type: STRING not compatible with writer type: LONG at /fields/0/type",
        "x at /fields/1",
    )


def test_the_level_of_compatibility_is_set(fake, registry):
    registry.set_compatibility("backward")
    registry.set_compatibility("FULL", "s")
    assert fake.levels == {"": "BACKWARD", "s": "FULL"}
    with pytest.raises(BadInput, match="'SIDEWAYS' is no compatibility level"):
        registry.set_compatibility("SIDEWAYS")


def test_what_is_no_schema_does_not_reach_the_registry(fake, registry):
    for call in (registry.register, registry.check, registry.lookup):
        with pytest.raises(BadInput):
            call("s", {"type": "nosuch"})
    assert fake.requests == []


# --- failures ---


def test_a_refused_connection_is_unreachable_and_soon_over(fake, registry):
    fake.stop()
    began = time.monotonic()
    with pytest.raises(RegistryUnreachable, match=fake.url) as caught:
        registry.subjects()
    assert time.monotonic() - began < 20
    assert caught.value.retryable
    assert "headrace status" in caught.value.hint
    fake.start()
    assert registry.subjects() == []


def test_a_registry_that_never_answers_is_given_up_in_time(fake):
    registry = Registry(fake.url, timeout=0.5)
    fake.hold.clear()
    began = time.monotonic()
    with pytest.raises(RegistryUnreachable):
        registry.subjects()
    assert 0.9 < time.monotonic() - began < 20
    fake.hold.set()
    assert Registry(fake.url, timeout=30).subjects() == []


def test_by_default_a_dead_registry_costs_a_few_seconds(fake):
    assert Registry(fake.url).timeout * 2 < 7  # there are two tries


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_registry_that_is_not_ready_is_unreachable(fake, registry, status):
    fake.fault = (status, b"<html>later</html>")
    with pytest.raises(RegistryUnreachable, match=f"HTTP status {status}"):
        registry.subjects()


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ((404, b"<html>no</html>"), "there is no registry at"),
        ((200, b"<html>hello</html>"), "does not answer as a registry does"),
        ((500, {"error_code": 50001, "message": "store broken"}), "store broken"),
        ((422, {"error_code": 42201, "message": "Invalid schema"}), "Invalid schema"),
        ((403, {"error_code": 403, "message": "no"}), "does not accept this user"),
    ],
)
def test_other_answers_are_errors_that_say_what_to_do(fake, registry, answer, complaint):
    fake.fault = answer
    with pytest.raises(RegistryError, match=complaint) as caught:
        registry.subjects()
    assert type(caught.value) is RegistryError
    assert caught.value.hint


def test_a_proxy_is_not_asked_for_what_is_on_this_machine(fake, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert Registry(fake.url).subjects() == []


def test_threads_share_a_registry(registry):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(registry.register("s", OLD).id))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 8


def test_a_closed_registry_opens_again(registry):
    registry.close()
    assert registry.subjects() == []


# --- secrets ---


@pytest.mark.parametrize("password", [SECRET, SecretStr(SECRET)])
def test_the_user_gets_in(fake, password):
    fake.password = ("ada", SECRET)
    registry = Registry(fake.url, auth=("ada", password))
    assert registry.subjects() == []
    assert pickle.loads(pickle.dumps(registry)).subjects() == []


def test_user_and_password_come_from_the_environment(fake, monkeypatch):
    fake.password = ("ada", "a:b")
    monkeypatch.setenv("HEADRACE_REGISTRY_AUTH", "ada:a:b")
    assert Registry(fake.url).subjects() == []


def test_the_password_is_nowhere_to_be_seen(fake, caplog):
    caplog.set_level("DEBUG")
    fake.password = ("ada", "another")
    registry = Registry(fake.url, auth=("ada", SECRET))
    with pytest.raises(RegistryError, match="does not accept this user") as caught:
        registry.subjects()
    shown = [repr(registry), str(registry), repr(Avro(OLD, registry)), str(caught.value)]
    shown += [caught.value.hint, repr(caught.value.facts), caplog.text]
    shown += traceback.format_exception(caught.value)
    assert not [text for text in shown if SECRET in text]
    assert "ada" in repr(registry)


@pytest.mark.parametrize(
    "url", ["http://ada:hunter2@localhost:8081", "http://a:1,http://ada:hunter2@b:2"]
)
def test_a_password_in_the_address_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigError) as caught:
        Registry(url)
    assert SECRET not in f"{caught.value.message} {caught.value.hint} {caught.value.facts}"


@pytest.mark.parametrize("url", ["", "localhost:8081", "ftp://x", "http://"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match="is no address of a registry"):
        Registry(url)


def test_a_variable_without_a_colon_is_refused_and_not_repeated(fake, monkeypatch):
    monkeypatch.setenv("HEADRACE_REGISTRY_AUTH", SECRET)
    with pytest.raises(ConfigError, match="HEADRACE_REGISTRY_AUTH is not user:password") as caught:
        Registry(fake.url)
    assert SECRET not in caught.value.message + caught.value.hint
    with pytest.raises(ConfigError, match="colon"):
        Registry(fake.url, auth=("a:b", "c"))


# --- without the extra ---


def test_what_is_not_installed_is_told_with_the_command(fake, monkeypatch):
    for name in [each for each in sys.modules if each.partition(".")[0] == "fastavro"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    for make in (lambda: Avro(OLD), lambda: Registry(fake.url)):
        with pytest.raises(ConfigError, match="not installed") as caught:
            make()
        assert caught.value.hint == "pip install 'headrace[avro]'"
