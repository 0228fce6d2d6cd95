"""`headrace schema`: what it prints, what it refuses, and its exit status."""

import json

import pytest

from headrace.cli.main import run
from support.fake_registry import FakeRegistry

OLD = {"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "note", "type": "string", "default": ""}]}


@pytest.fixture
def fake(monkeypatch):
    server = FakeRegistry()
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "127.0.0.1:1")  # no broker is asked
    monkeypatch.setenv("HEADRACE_REGISTRY", server.url)
    yield server
    server.stop()


@pytest.fixture
def schema(fake, capfd):
    """Calls `headrace schema`: exit status, stdout and stderr."""

    def call(*arguments):
        status = run(["schema", *map(str, arguments)])
        out, err = capfd.readouterr()
        return status, out, err

    return call


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.avsc"
    path.write_text(json.dumps(OLD))
    return path


@pytest.fixture
def new(tmp_path):
    path = tmp_path / "new.avsc"
    path.write_text(json.dumps(NEW))
    return path


def test_register_get_and_list(schema, old, new):
    status, out, _ = schema("register", "alerts-value", old, "-o", "json")
    assert (status, json.loads(out)) == (
        0,
        {"subject": "alerts-value", "version": 1, "id": 1, "type": "AVRO", "schema": OLD},
    )
    assert schema("register", "alerts-value", new) == (0, "alerts-value version 2, id 2\n", "")
    assert json.loads(schema("get", "alerts-value", "-o", "json")[1])["schema"] == NEW
    first = json.loads(schema("get", "alerts-value", "--version", 1, "-o", "json")[1])
    assert (first["version"], first["schema"]) == (1, OLD)
    assert json.loads(schema("list", "-o", "json")[1]) == [
        {"subject": "alerts-value", "versions": [1, 2]}
    ]
    assert "alerts-value" in schema("list")[1]
    assert '"name": "note"' in schema("get", "alerts-value")[1]


def test_a_check_exits_with_one_and_says_why(schema, fake, old, new):
    status, out, _ = schema("check", "s", new, "-o", "json")
    assert (status, json.loads(out)) == (
        0,
        {"subject": "s", "compatible": True, "reasons": [], "new": True},
    )
    assert schema("check", "s", new)[1] == "compatible: s has no schema yet\n"
    schema("register", "s", old)
    assert schema("check", "s", new) == (0, "compatible with s\n", "")
    fake.objections = ["[note] has no default"]
    status, out, err = schema("check", "s", new, "-o", "json")
    assert status == 1
    assert json.loads(out)["reasons"] == ["[note] has no default"]
    assert "hint: " in err
    status, out, _ = schema("check", "s", new)
    assert (status, out) == (1, "not compatible with s:\n  [note] has no default\n")
    assert fake.versions == {"s": [1]}


def test_a_refused_schema_is_exit_1_with_reasons(schema, fake, old, new):
    schema("register", "s", old)
    fake.objections = ["no default for note"]
    status, out, err = schema("register", "s", new)
    assert (status, out) == (1, "")
    assert "not compatible" in err
    assert "no default for note" in err
    assert "hint: " in err


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("get", "nosuch"), 1, "not found"),
        (("get", "s", "--version", "0"), 2, "there is no version 0"),
        (("register", "s", "nosuch.avsc"), 2, "cannot be read"),
        (("check", "s", "nosuch.avsc"), 2, "cannot be read"),
        (("classes", "nosuch.avsc"), 2, "cannot be read"),
        (("register", "s"), 2, "Missing argument"),
    ],
)
def test_refusals_are_one_error_and_one_hint(schema, arguments, status, complaint):
    found, out, err = schema(*arguments)
    error, hint = err.splitlines()[-2:]
    assert (found, out) == (status, "")
    assert error.startswith("error: ")
    assert complaint in error
    assert hint.startswith("hint: ")


def test_an_unreachable_registry_is_exit_1(schema, fake):
    fake.stop()
    status, out, err = schema("list")
    assert (status, out) == (1, "")
    assert f"no answer from the registry at {fake.url}" in err


def test_without_a_registry_the_hint_says_how_to_start_one(schema, monkeypatch):
    monkeypatch.delenv("HEADRACE_REGISTRY")
    status, _, err = schema("list")
    assert status == 2
    assert "there is no schema registry" in err
    assert "headrace up --registry" in err


# --- classes ---


def test_classes_go_to_stdout_and_need_no_registry(schema, monkeypatch, old):
    monkeypatch.delenv("HEADRACE_REGISTRY")
    monkeypatch.delenv("HEADRACE_BOOTSTRAP")
    status, out, err = schema("classes", old)
    assert (status, err) == (0, "")
    names: dict[str, object] = {}
    exec(compile(out, "classes", "exec"), names)
    assert names["Alert"](id=1).id == 1
    document = json.loads(schema("classes", old, "-o", "json")[1])
    assert (document["classes"], document["out"], document["source"]) == (["Alert"], None, out)


def test_classes_go_to_a_file_again_and_again(schema, old, new, tmp_path):
    out = tmp_path / "alerts.py"
    assert schema("classes", old, "--out", out)[0] == 0
    assert "note" not in out.read_text()
    status, shown, _ = schema("classes", new, "--out", out, "-o", "json")
    assert status == 0
    assert json.loads(shown) == {
        "file": str(new),
        "out": str(out),
        "classes": ["Alert"],
        "source": None,
    }
    assert "note: str" in out.read_text()


def test_a_file_that_somebody_wrote_is_left_alone(schema, old, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("precious = 1\n")
    status, _, err = schema("classes", old, "--out", own)
    assert status == 2
    assert "was not written by this command" in err
    assert own.read_text() == "precious = 1\n"


def test_what_cannot_be_written_is_bad_input(schema, old, tmp_path):
    assert schema("classes", old, "--out", tmp_path / "no" / "where.py")[0] == 2
    assert schema("classes", old, "--out", tmp_path)[0] == 2


def test_a_schema_without_records_needs_no_class(schema, tmp_path):
    path = tmp_path / "text.avsc"
    path.write_text('"string"')
    status, _, err = schema("classes", path)
    assert status == 2
    assert "neither a record nor an enum" in err
