"""Which cluster is meant: the first match of the documented order, and nothing else."""

import pytest
from pydantic import SecretStr

from headrace.clients.connection import Connection, resolve
from headrace.errors import ConfigError, NoCluster
from headrace.local.processes import mark
from headrace.local.spec import KAFKA_VERSION, BrokerSpec, ClusterSpec, Owner, new_cluster_id, save

FILE = """
default = "staging"
[profiles.staging]
bootstrap = "staging:1"
registry = "http://registry:8081"
[profiles.other]
bootstrap = "other:1"
[profiles.secret]
bootstrap = "secret:1"
[profiles.secret.client]
"sasl.password" = { env = "PASSWORD" }
"""
VARIABLES = {"HEADRACE_BOOTSTRAP": "variable:1", "HEADRACE_REGISTRY": "http://variable"}


@pytest.fixture
def toml(tmp_path):
    (tmp_path / "work" / "headrace.toml").write_text(FILE)


@pytest.fixture
def local(places, run_marked):
    """Make local clusters; a marked process stands for a running broker."""

    def make(name: str, port: int = 9092, *, running: bool = True, owner: Owner | None = None):
        spec = ClusterSpec(name, new_cluster_id(), KAFKA_VERSION, (BrokerSpec(1, port, None),))
        folder = places.clusters / name
        (folder / "broker-1").mkdir(parents=True)
        save(folder, spec.with_(owner=owner))
        if running:
            run_marked(mark(spec.cluster_id, "broker-1"))

    return make


def test_a_profile_by_name_comes_first(toml, local):
    local("default")
    found = resolve("other", VARIABLES)
    assert (found.bootstrap, found.source) == ("other:1", "profile 'other'")


def test_a_profile_comes_before_a_local_cluster_of_the_same_name(toml, local):
    local("staging")
    assert resolve("staging", {}).bootstrap == "staging:1"


def test_a_local_cluster_can_be_named_like_a_profile(toml, local):
    local("mine", 9999)
    found = resolve("mine", VARIABLES)
    assert (found.bootstrap, found.source) == ("127.0.0.1:9999", "local cluster 'mine'")


def test_the_variable_comes_before_the_default_profile(toml, local):
    local("default")
    found = resolve(None, VARIABLES)
    assert found == Connection("variable:1", "http://variable", {}, "HEADRACE_BOOTSTRAP")


def test_the_default_profile_comes_before_the_local_cluster(toml, local):
    local("default")
    found = resolve(None, {})
    assert (found.bootstrap, found.registry) == ("staging:1", "http://registry:8081")
    assert found.source.endswith("headrace.toml")


def test_the_running_local_cluster_comes_last(local):
    local("default", 9191)
    assert resolve(None, {}).bootstrap == "127.0.0.1:9191"


def test_the_only_running_cluster_is_meant_whatever_its_name(local):
    local("stopped", 1, running=False)
    local("mine", 9292)
    assert resolve(None, {}).bootstrap == "127.0.0.1:9292"


def test_of_several_running_clusters_the_default_is_meant(local):
    local("a", 1)
    local("default", 9393)
    assert resolve(None, {}).bootstrap == "127.0.0.1:9393"


def test_several_running_clusters_without_a_default_are_an_error_that_names_them(local):
    local("a", 1)
    local("b", 2)
    with pytest.raises(NoCluster, match="a, b") as caught:
        resolve(None, {})
    assert "--profile" in caught.value.hint


def test_a_short_lived_cluster_of_another_program_is_never_meant(local):
    local("short-lived-1", owner=Owner(1, 0))
    with pytest.raises(NoCluster):
        resolve(None, {})


def test_no_cluster_at_all_is_an_error_with_a_next_step():
    with pytest.raises(NoCluster) as caught:
        resolve(None, {})
    assert "headrace up" in caught.value.hint


def test_a_stopped_cluster_by_name_is_an_error_that_says_how_to_start_it(local):
    local("mine", running=False)
    with pytest.raises(NoCluster, match="is stopped") as caught:
        resolve("mine", {})
    assert "headrace up --name mine" in caught.value.hint


def test_an_unknown_name_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match="'nosuch'") as caught:
        resolve("nosuch", VARIABLES)
    assert caught.value.facts == {"profile": "nosuch"}


def test_a_secret_is_unwrapped_only_for_the_client(toml):
    found = resolve("secret", {"PASSWORD": "hunter2"})
    assert found.settings == {"sasl.password": SecretStr("hunter2")}
    assert "hunter2" not in f"{found} {found!r}"
    assert found.client_settings()["sasl.password"] == "hunter2"


def test_what_is_asked_for_comes_before_the_profile_and_that_before_the_defaults():
    connection = Connection("b:1", settings={"client.id": "mine", "linger.ms": 1})
    assert Connection("b:1").client_settings()["client.id"] == "headrace"
    settings = connection.client_settings(linger_ms=7)
    assert (settings["client.id"], settings["linger.ms"]) == ("mine", 7)
    assert settings["bootstrap.servers"] == "b:1"
