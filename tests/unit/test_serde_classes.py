"""Classes from a schema: typed, documented, clean to linters, and good for reading and writing."""

import ast
import dataclasses
import json
import subprocess
import sys
import typing
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from headrace.errors import BadInput
from headrace.serde import Avro, Field
from headrace.serde.classes import write_classes
from headrace.serde.schemas import load_schema
from support.avro import EVERYTHING, EVERYTHING_DEFAULTS, module_from, schemas_with_values

AT = Field("t", "value", 0, 1)
BIN = Path(sys.executable).parent
ALERT = {
    "type": "record",
    "name": "Alert",
    "namespace": "org.kafkainaction",
    "doc": "What a sensor of an e-bike reports.",
    "fields": [
        {"name": "sensor_id", "type": "long", "doc": "The sensor that spoke."},
        {"name": "time", "type": "long", "doc": "When, in milliseconds since 1970 (UTC)."},
        {
            "name": "status",
            "type": {
                "type": "enum",
                "name": "AlertStatus",
                "symbols": ["Critical", "Major", "Minor", "Warning"],
                "doc": "How bad it is.",
            },
        },
    ],
}
ALERT_MODULE = '''"""Classes for the Avro schema org.kafkainaction.Alert.

Written by `headrace schema classes`; change the schema, not this file.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class AlertStatus(StrEnum):
    """How bad it is."""

    __avro_name__ = "org.kafkainaction.AlertStatus"

    Critical = "Critical"
    Major = "Major"
    Minor = "Minor"
    Warning = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What a sensor of an e-bike reports."""

    __avro_schema__: ClassVar[str] = (
        ...
    )
    __avro_name__: ClassVar[str] = "org.kafkainaction.Alert"

    # The sensor that spoke.
    sensor_id: int
    # When, in milliseconds since 1970 (UTC).
    time: int
    status: AlertStatus
'''
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "label", "type": ["null", "string"], "default": None},
        {"name": "below", "type": {"type": "array", "items": "Tree"}, "default": []},
        {"name": "parent", "type": ["null", "Tree"], "default": None},
    ],
}
AWKWARD = {
    "type": "record",
    "name": "class",
    "doc": "Ends with a backslash \\",
    "fields": [
        {"name": "dataclass", "type": "int", "doc": "a\u0000b\u202ec\td"},
        {"name": "field", "type": "int", "default": 1},
        {"name": "1st", "type": "int"},
        {"name": "a b", "type": "int"},
        {"name": "a_b", "type": "int"},
        {"name": "été", "type": "int"},
        {"name": "self", "type": "int"},
        {"name": "None", "type": {"type": "enum", "name": "str", "symbols": ["mro", "mro_"]}},
        {
            "name": "Decimal",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
        },
        {"name": "url", "type": "string", "default": "http://" + "x" * 200, "doc": "y" * 120},
        {"name": "aB", "type": "int", "default": 1},
    ],
}


def test_a_module_looks_as_one_would_write_it():
    source = write_classes(load_schema(ALERT)).source
    tree = ast.parse(source)
    alert = next(node for node in tree.body if getattr(node, "name", "") == "Alert")
    text = ast.literal_eval(alert.body[1].value)
    assert json.loads(text) == ALERT
    lines = source.splitlines()
    first = next(i for i, line in enumerate(lines) if "__avro_schema__" in line)
    last = lines.index("    )")
    shown = [*lines[: first + 1], "        ...", *lines[last:]]
    assert "\n".join(shown) + "\n" == ALERT_MODULE


def test_an_alert_goes_in_and_comes_out(tmp_path):
    classes = module_from(ALERT, tmp_path)
    serde = Avro(classes.Alert)
    alert = classes.Alert(sensor_id=1, time=2, status=classes.AlertStatus.Major)
    data = serde.encode(alert, AT)
    assert serde.decode(data, AT) == alert
    assert type(serde.decode(data, AT).status) is classes.AlertStatus
    assert Avro(ALERT).decode(data, AT) == {"sensor_id": 1, "time": 2, "status": "Major"}
    assert serde.schema.text == Avro(ALERT).schema.text  # so both are one schema to a registry


def test_every_kind_of_type_and_default_comes_back(tmp_path):
    classes = module_from(EVERYTHING, tmp_path)
    serde = Avro(classes.Everything)
    value = classes.Everything(id=7)
    assert serde.decode(serde.encode(value, AT), AT) == value
    assert Avro(EVERYTHING).decode(serde.encode(value, AT), AT) == {"id": 7, **EVERYTHING_DEFAULTS}
    assert value.where == classes.Place(x=1.0, y=2.5, status=classes.Status.Major)
    assert value.levels == [classes.Status.title_]
    assert (value.class__, value.class_, value.field_dunder) == (
        EVERYTHING_DEFAULTS["class"],
        "s",
        True,
    )


@pytest.mark.parametrize("which", ["string", "long", "Place", "Place2", "Status", "list", "next"])
def test_a_union_gives_back_the_class_that_was_put_in(tmp_path, which):
    classes = module_from(EVERYTHING, tmp_path)
    place = classes.Place(y=1.0)
    either = {
        "string": "Major",
        "long": 5,
        "Place": place,
        "Place2": classes.Place2(x=1.0),
        "Status": classes.Status.None_,
        "list": [place, place],
        "next": "",
    }[which]
    below = classes.Everything(id=2) if which == "next" else None
    value = classes.Everything(id=1, either=either, next=below)
    back = Avro(classes.Everything).decode(Avro(classes.Everything).encode(value, AT), AT)
    assert back == value
    assert type(back.either) is type(either)


def test_a_type_may_contain_itself(tmp_path):
    classes = module_from(TREE, tmp_path)
    leaf = classes.Tree(label="leaf")
    tree = classes.Tree(below=[leaf, classes.Tree(below=[leaf])], parent=leaf)
    assert Avro(classes.Tree).decode(Avro(classes.Tree).encode(tree, AT), AT) == tree
    assert typing.get_type_hints(classes.Tree)["parent"] == classes.Tree | None


def test_names_that_python_cannot_have_get_others(tmp_path):
    schema = load_schema(AWKWARD)
    module = module_from(AWKWARD, tmp_path)
    cls = module.class_
    names = {f.metadata.get("avro", f.name): f.name for f in dataclasses.fields(cls)}
    assert list(names) == [each["name"] for each in AWKWARD["fields"]]
    assert all(name.isidentifier() and name.isascii() for name in names.values())
    assert len(set(names.values())) == len(names)
    assert names["a_b"] == "a_b"
    assert issubclass(module.str_, StrEnum)
    assert [member.value for member in module.str_] == ["mro", "mro_"]
    assert schema.name == "class"


def test_records_beside_each_other_are_both_usable(tmp_path):
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    both = [
        {"type": "record", "name": "A", "fields": [{"name": "i", "type": inner}]},
        {"type": "record", "name": "B", "fields": [{"name": "i", "type": "Inner"}]},
    ]
    classes = module_from(both, tmp_path)
    for cls in (classes.A, classes.B):
        value = cls(i=classes.Inner(x=3))
        assert Avro(cls).decode(Avro(cls).encode(value, AT), AT) == value


def test_fields_cannot_be_changed_or_misspelt(tmp_path):
    classes = module_from(ALERT, tmp_path)
    alert = classes.Alert(sensor_id=1, time=2, status=classes.AlertStatus.Minor)
    with pytest.raises(dataclasses.FrozenInstanceError):
        alert.time = 3
    with pytest.raises(TypeError):
        classes.Alert(sensor_id=1, tiem=2, status=classes.AlertStatus.Minor)


def test_docs_become_comments_and_docstrings(tmp_path):
    classes = module_from(EVERYTHING, tmp_path)
    assert classes.Everything.__doc__.split() == EVERYTHING["doc"].split()
    source = write_classes(load_schema(EVERYTHING)).source
    assert "    # Its number. Never changes. Long words." in source
    assert max(map(len, source.splitlines())) <= 88


@settings(
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(pair=schemas_with_values(top="record"))
def test_any_record_comes_back_through_its_class_byte_for_byte(tmp_path, pair):
    schema, value = pair
    module = module_from(schema, tmp_path)
    cls = getattr(module, schema["name"].rpartition(".")[2])
    data = Avro(schema).encode(value, AT)
    back = Avro(cls).decode(data, AT)
    assert type(back) is cls
    assert Avro(cls).encode(back, AT) == data


def test_modules_are_clean_to_ruff_and_to_strict_mypy(tmp_path):
    deep = {
        "type": "record",
        "name": "long_name_" * 8,
        "fields": [
            {
                "name": f"f{i}",
                "type": [
                    "null",
                    *(["org.kafkainaction.Other"] if i else [{**ALERT, "name": "Other"}]),
                ],
            }
            for i in range(3)
        ],
    }
    for index, schema in enumerate([ALERT, EVERYTHING, TREE, AWKWARD, deep, [ALERT, TREE]]):
        source = write_classes(load_schema(schema)).source
        (tmp_path / f"written_{index}.py").write_text(source, "utf-8")
    root = Path(__file__).parents[2]
    ruff = [str(BIN / "ruff"), "check", "--no-cache"]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=/dev/null"]
    for command in (
        [*ruff, "--isolated", "."],
        [*ruff, "--config", str(root / "pyproject.toml"), "."],
        [*mypy, "."],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_schema_whose_default_is_no_value_is_refused():
    bad = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "d", "type": {"type": "int", "logicalType": "date"}, "default": 2**31 - 1}
        ],
    }
    with pytest.raises(BadInput, match=r"the default of R\.d does not fit"):
        write_classes(load_schema(bad))
