"""The public names are the ones promised, documented, and cost nothing until they are used."""

import importlib
import json

import pytest

import headrace

HEAVY = ("confluent_kafka", "pydantic", "rich", "typer", "psutil", "jgo")
MODULES_AFTER = "import json, sys; print(json.dumps(sorted(sys.modules)))"
RUN_HELP = """
import contextlib, io, json, sys
from headrace.cli.main import run
with contextlib.redirect_stdout(io.StringIO()) as out:
    status = run(sys.argv[1:])
print(json.dumps([status, out.getvalue(), sorted(sys.modules)]))
"""


def test_all_names_have_a_home():
    assert set(headrace.__all__) == set(headrace._HOMES)
    assert headrace.__all__ == sorted(headrace.__all__)


@pytest.mark.parametrize("name", headrace.__all__)
def test_a_public_name_is_importable_documented_and_public_where_it_lives(name):
    found = getattr(headrace, name)
    home = importlib.import_module(headrace._HOMES[name])
    assert found is getattr(home, name)
    assert found.__doc__
    assert name in getattr(home, "__all__", [name])


def test_public_names_are_shown_by_dir():
    assert set(headrace.__all__) <= set(dir(headrace))


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="'Prodcuer'"):
        _ = headrace.Prodcuer


def test_importing_the_package_loads_nothing_heavy(run_python):
    done = run_python(f"import headrace; {MODULES_AFTER}")
    assert done.returncode == 0
    assert not set(HEAVY) & set(json.loads(done.stdout))


@pytest.mark.parametrize("arguments", [["--help"], ["up", "--help"], ["topic", "--help"]])
def test_help_is_shown_without_loading_the_kafka_client(run_python, arguments):
    done = run_python(RUN_HELP, *arguments)
    status, text, modules = json.loads(done.stdout)
    assert status == 0
    assert "Usage: headrace" in text
    assert not {"confluent_kafka", "jgo", "psutil"} & set(modules)


@pytest.mark.parametrize(
    "package", ["clients", "config", "labs", "local", "model", "observe", "testing"]
)
def test_every_name_a_room_offers_is_there(package):
    room = importlib.import_module(f"headrace.{package}")
    assert room.__doc__
    assert all(hasattr(room, name) for name in room.__all__)
