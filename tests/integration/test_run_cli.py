"""`headrace run`: an app in one process or several, stopped in order, and what goes wrong."""

import json
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from headrace.clients import Connection
from headrace.services.instances import heard, told
from support.handled import send_numbers
from support.waiting import eventually

APP = """
import os, time
import headrace as hr
from headrace.clients import resolve

app = hr.App()
empty = hr.App()
distant = hr.App()

@app.consumer(os.environ["TOPIC"], group=os.environ["GROUP"], concurrency=10)
def handle(value: bytes) -> None:
    time.sleep(float(os.environ.get("WORK", "0")))
    if value == os.environ.get("BAD", "").encode():
        raise ValueError("no good")
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(f"{value.decode()} {os.getpid()}\\n")

@distant.consumer(os.environ["TOPIC"], group=os.environ["GROUP"], executor="process")
def tell(value: bytes) -> None:
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(f"{value.decode()} {resolve().bootstrap}\\n")
"""


# Seconds for a record. 2,000 of them are a minute's work for one instance: there is some left for
# the other, however late it comes.
SLOW = "0.3"


class Shop:
    """An app in a folder, and the command that runs it."""

    def __init__(self, folder: Path, headrace, topic: str, group: str) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.ledger.touch()
        (folder / "shop.py").write_text(APP)
        self._environment = headrace.environment | {
            "TOPIC": topic,
            "GROUP": group,
            "LEDGER": str(self.ledger),
        }
        self._started: list[subprocess.Popen[str]] = []

    def run(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        return self.command("run", *arguments, **environment)

    def command(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "headrace"), *arguments],
            cwd=self.folder,
            env=self._environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def handled(self) -> list[int]:
        return sorted(int(line.split()[0]) for line in self.ledger.read_text().splitlines())

    def handlers(self) -> set[int]:
        return {int(line.split()[1]) for line in self.ledger.read_text().splitlines()}

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def shop(tmp_path, headrace, make_topic):
    topic = make_topic(4)
    # Left to the cluster's end: instances that were killed belong to it for a while.
    found = Shop(tmp_path, headrace, topic, f"group-{secrets.token_hex(3)}")
    found.topic = topic
    yield found
    found.close()


def test_instances_share_the_work_and_stop_in_order(shop, kafka_cluster, admin):
    send_numbers(kafka_cluster.bootstrap, shop.topic, 2000, keys=100)
    process = shop.run("shop:app", "--instances", "2", "-o", "json", WORK=SLOW)
    eventually(lambda: len(shop.handlers()) == 2, "both instances are at work", 60)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert '"handled"' in out
    before = shop.handled()
    again = shop.run("shop:app")
    eventually(lambda: len(shop.handled()) == 2000, "the rest is handled", 60)
    again.send_signal(signal.SIGINT)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert f"{2000 - len(before):,}" in out  # the table at the end
    assert shop.handled() == list(range(2000))


@pytest.mark.parametrize("app", ["app", "distant"])
def test_instances_read_the_cluster_of_the_profile(shop, kafka_cluster, app):
    """What the environment says is another cluster. Their own processes know of it too."""
    send_numbers(kafka_cluster.bootstrap, shop.topic, 10, keys=10)
    (shop.folder / "headrace.toml").write_text(
        f'[profiles.prod]\nbootstrap = "{kafka_cluster.bootstrap}"\n'
    )
    command = ("--profile", "prod", "run", f"shop:{app}")
    process = shop.command(*command, HEADRACE_BOOTSTRAP="127.0.0.1:1")
    eventually(lambda: len(shop.handled()) == 10, "all are handled", 60)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    if app == "distant":
        told = {line.split()[1] for line in shop.ledger.read_text().splitlines()}
        assert told == {kafka_cluster.bootstrap}


def test_a_connection_reaches_an_instance_whole():
    settings = {
        "sasl.username": "shop",
        "sasl.password": SecretStr("hunter2"),
        "fetch.min.bytes": 5,
    }
    connection = Connection("kafka:9092", "http://registry", settings, "profile 'prod'")
    assert heard(json.loads(json.dumps(told(connection)))) == connection


def test_a_failing_handler_ends_all_instances_with_its_error(shop, kafka_cluster):
    send_numbers(kafka_cluster.bootstrap, shop.topic, 100, keys=10)
    process = shop.run("shop:app", "--instances", "2", BAD="42")
    _, err = process.communicate(timeout=90)
    assert process.returncode == 1
    assert "error: instance " in err
    assert "no good" in err
    assert "hint: " in err
    assert "Traceback" not in err


def test_a_killed_instance_is_reported_and_the_others_stop(shop, kafka_cluster):
    send_numbers(kafka_cluster.bootstrap, shop.topic, 2000, keys=100)
    process = shop.run("shop:app", "--instances", "2", WORK=SLOW)
    eventually(lambda: len(shop.handlers()) == 2, "both instances are at work", 60)
    victim = min(shop.handlers())
    psutil.Process(victim).kill()
    _, err = process.communicate(timeout=90)
    assert process.returncode == 1
    assert "killed by signal 9" in err


def test_instances_end_with_the_command_that_started_them(shop, kafka_cluster):
    send_numbers(kafka_cluster.bootstrap, shop.topic, 2000, keys=100)
    process = shop.run("shop:app", "--instances", "2", WORK=SLOW)
    eventually(lambda: len(shop.handlers()) == 2, "both instances are at work", 60)
    process.kill()
    eventually(lambda: not any(map(psutil.pid_exists, shop.handlers())), "no instance is left", 60)
    assert len(shop.handlers()) == 2  # those that are gone


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("shop", "names no app"),
        ("nowhere:app", "there is no module nowhere"),
        ("shop:application", "has no application"),
        ("shop:os", "os is no headrace.App"),
        ("shop:empty", "has no consumers"),
        ("broken:app", "cannot be imported"),
        ("wrong:app", "concurrency=0 is out of range"),
    ],
)
def test_a_wrong_reference_says_what_is_wrong(shop, reference, complaint):
    (shop.folder / "broken.py").write_text("1 / 0")
    (shop.folder / "wrong.py").write_text(
        "import headrace as hr\napp = hr.App()\n"
        "@app.consumer('t', group='g', concurrency=0)\ndef handle(value): ...\n"
    )
    process = shop.run(reference)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert complaint in err
    assert "hint: " in err
    assert "Traceback" not in err
