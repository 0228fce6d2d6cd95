"""How servers are prepared: whole folders, their own environment, and waiting with reason."""

import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from headrace.errors import ClusterError, ServerDied
from headrace.local import servers
from headrace.local.class_archive import ClassArchive
from headrace.local.java import Java, java_environment
from headrace.local.processes import Server, mark
from headrace.local.spec import KAFKA_VERSION, BrokerSpec, ClusterSpec, new_cluster_id
from support.http import answering

SPEC = ClusterSpec(
    "x", new_cluster_id(), KAFKA_VERSION, (BrokerSpec(1, 9092, 20_000),), registry_port=8081
)
FORMATS = """#!/bin/sh
for last do :; done
mkdir "$(sed -n 's/^log.dirs=//p' "$last")"
"""
SECOND_HANGS = """#!/bin/sh
for last do :; done
case "$last" in *broker-2*) exec sleep 60;; *) exit 1;; esac
"""
FAILS = "#!/bin/sh\necho 'INFO begin'\necho 'ERROR the disk is broken' >&2\nexit 1\n"


@pytest.fixture
def kafka(tmp_path):
    """Kafka on a Java that is a script."""

    def make(script: str, jars: tuple[Path, ...] = (Path("a.jar"), Path("b.jar"))) -> servers.Kafka:
        executable = tmp_path / "jdk" / "bin" / "java"
        executable.parent.mkdir(parents=True, exist_ok=True)
        executable.write_text(script)
        executable.chmod(stat.S_IRWXU)
        java = Java(tmp_path / "jdk", "21", "fake")
        return servers.Kafka(java, jars, ClassArchive(tmp_path / "cache", java, jars, "abc"))

    return make


@pytest.fixture
def broker(tmp_path):
    at = servers.broker_server(tmp_path / "cluster", SPEC, SPEC.brokers[0])
    servers.write_broker_files(SPEC, SPEC.brokers[0], at)
    return at


@pytest.fixture
def live(tmp_path, run_marked):
    """A server whose process runs."""
    server = Server("registry", tmp_path, mark(new_cluster_id(), "registry"))
    run_marked(server.mark)
    return server


@pytest.fixture
def failing_twice():
    """An HTTP server that fails twice before it succeeds."""
    statuses = [503, 500]

    def answer(request):
        request.send_response(statuses.pop(0) if statuses else 200)
        request.end_headers()

    with answering(answer) as address:
        yield f"{address}/subjects", statuses


def test_a_servers_folder_and_mark_tell_its_cluster_and_node(broker, tmp_path):
    assert broker.folder == tmp_path / "cluster" / "broker-1"
    assert broker.mark == mark(SPEC.cluster_id, "broker-1")


def test_a_brokers_files_are_written_before_it_starts(broker):
    written = {path.name for path in broker.folder.iterdir()}
    assert written == {"server.properties", "log4j2.properties"}
    assert f"log.dirs={broker.folder}/data\n" in (broker.folder / "server.properties").read_text()


def test_a_new_data_folder_is_formatted_beside_and_then_renamed(kafka, broker):
    servers.format_data(kafka(FORMATS), SPEC, [broker])
    assert (broker.folder / "data").is_dir()
    assert list(broker.folder.glob("data.new*")) == []


def test_a_formatting_that_fails_leaves_no_data_folder_and_tells_why(kafka, broker):
    with pytest.raises(ClusterError, match="the disk is broken") as caught:
        servers.format_data(kafka(FAILS), SPEC, [broker])
    assert caught.value.facts["node"] == "broker-1"
    assert not (broker.folder / "data").exists()


def test_what_a_killed_formatting_left_behind_is_replaced(kafka, broker):
    (broker.folder / "data.new-1" / "half").mkdir(parents=True)
    (broker.folder / "data.new-1.properties").touch()
    servers.format_data(kafka(FORMATS), SPEC, [broker])
    assert list((broker.folder / "data").iterdir()) == []
    assert list(broker.folder.glob("data.new*")) == []


def test_a_tool_that_was_left_alone_does_not_disturb_the_next(kafka, broker):
    """Its caller was killed, and it goes on."""
    formats = kafka(FORMATS)
    alone = servers._start_format(formats, SPEC, broker)
    servers.format_data(formats, SPEC, [broker])
    alone.process.communicate()
    assert list((broker.folder / "data").iterdir()) == []
    alone.end()


def test_when_one_formatting_fails_the_others_are_ended(kafka, tmp_path):
    spec = replace(SPEC, brokers=(SPEC.brokers[0], BrokerSpec(2, 9093, 20_001)))
    both = [servers.broker_server(tmp_path / "cluster", spec, each) for each in spec.brokers]
    for at, each in zip(both, spec.brokers, strict=True):
        servers.write_broker_files(spec, each, at)
    before = psutil.Process().children()
    with pytest.raises(ClusterError, match="broker-1"):
        servers.format_data(kafka(SECOND_HANGS), spec, both)
    assert psutil.Process().children() == before
    assert [path for at in both for path in at.folder.glob("data*")] == []


def test_a_data_folder_that_is_there_is_never_formatted_again(kafka, broker):
    (broker.folder / "data" / "topic-0").mkdir(parents=True)
    servers.format_data(kafka(FAILS), SPEC, [broker])
    assert (broker.folder / "data" / "topic-0").is_dir()


def test_a_tool_runs_on_all_jars_and_its_output_is_returned(kafka):
    printed = kafka('#!/bin/sh\necho "$@"\n').run("kafka.Tool", "a b", seconds=60)
    assert f"-cp a.jar{os.pathsep}b.jar kafka.Tool a b" in printed


def test_a_tool_that_fails_or_hangs_is_an_error_that_names_it(kafka):
    with pytest.raises(ClusterError, match=r"kafka\.Tool failed: ERROR the disk is broken"):
        kafka(FAILS).run("kafka.Tool", seconds=60)
    with pytest.raises(ClusterError, match=r"kafka\.Tool did not end within"):
        kafka("#!/bin/sh\nexec sleep 60\n").run("kafka.Tool", seconds=0.05)


def test_a_broker_is_started_with_its_mark_and_settings(kafka, broker, wait_until):
    script = f'#!{sys.executable}\nimport sys; print("\\n".join(sys.argv), "end", flush=True)\n'
    servers.spawn_broker(kafka(script), broker)
    wait_until(lambda: "end" in broker.console.read_text())
    arguments = broker.console.read_text().split("\n")
    assert broker.mark in arguments
    assert arguments[-2].startswith(str(broker.folder / "server.properties"))


def test_the_users_java_settings_do_not_reach_the_servers(monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1m")
    monkeypatch.setenv("CLASSPATH", "/mine")
    monkeypatch.setenv("KEPT", "1")
    environment = java_environment()
    assert environment["KEPT"] == "1"
    assert not {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"} & set(
        environment
    )


def test_nor_do_they_reach_kafkas_tools(kafka, broker, monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseG1GC")
    refuses = '#!/bin/sh\n[ -z "$JDK_JAVA_OPTIONS" ] || exit 1\n'
    servers.format_data(kafka(FORMATS.replace("#!/bin/sh\n", refuses)), SPEC, [broker])
    assert kafka(f"{refuses}echo fine\n").run("kafka.Tool", seconds=60) == "fine\n"


def test_waiting_ends_when_the_address_answers_with_success(live, failing_twice):
    address, failures_left = failing_twice
    servers.wait_for_http(live, address, 60)
    assert failures_left == []


def test_waiting_does_not_go_through_a_proxy(live, failing_twice, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    address, failures_left = failing_twice
    servers.wait_for_http(live, address, 60)
    assert failures_left == []


def test_waiting_for_a_dead_server_ends_at_once_with_its_last_words(tmp_path):
    server = Server("registry", tmp_path, mark(new_cluster_id(), "registry"))
    server.console.write_text("ERROR port taken\n")
    with pytest.raises(ServerDied, match="ERROR port taken"):
        servers.wait_for_http(server, "http://127.0.0.1:1/", 60)


def test_waiting_for_a_server_that_never_answers_ends_in_time(live):
    with pytest.raises(ServerDied, match="did not answer"):
        servers.wait_for_http(live, "http://127.0.0.1:1/", 0.05)


def test_addresses_are_what_clients_take():
    assert servers.registry_address(SPEC) == "http://127.0.0.1:8081/apis/ccompat/v7"
    assert servers.connect_address(SPEC.with_(connect_port=8083)) == "http://127.0.0.1:8083"


def test_the_connectors_that_come_along_are_in_the_lock(kafka, tmp_path):
    (plugin,) = servers.connect_plugins(servers.read_lock("kafka"))
    jar = tmp_path / plugin.file_name
    jar.write_bytes(b"jar")
    servers._lay_out_plugins(kafka("", (jar, Path("other.jar"))), tmp_path / "plugins")
    laid_out = [path for path in (tmp_path / "plugins").rglob("*") if path.is_file()]
    assert [path.name for path in laid_out] == [plugin.file_name]
