"""Which Spark master counts: the argument, the variable, headrace.toml, this machine."""

import pytest

from headrace.errors import ConfigError
from headrace.spark.session import LOCAL_MASTER, MASTER_VARIABLE, _settings, choose_master

TOML = """
[spark]
master = "spark://file:7077"
[spark.config]
"spark.executor.memory" = "4g"
"spark.speculation" = true
"spark.executor.cores" = 2
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(MASTER_VARIABLE, raising=False)
    return tmp_path


def test_without_a_word_it_is_this_machine(folder):
    assert choose_master(None) == (LOCAL_MASTER, {})


def test_headrace_toml_names_a_master_and_settings(folder):
    (folder / "headrace.toml").write_text(TOML)
    settings = {
        "spark.executor.memory": "4g",
        "spark.speculation": "true",
        "spark.executor.cores": "2",
    }
    assert choose_master(None) == ("spark://file:7077", settings)


def test_the_variable_stands_over_the_file_and_the_argument_over_both(folder, monkeypatch):
    (folder / "headrace.toml").write_text(TOML)
    monkeypatch.setenv(MASTER_VARIABLE, "spark://variable:7077")
    assert choose_master(None)[0] == "spark://variable:7077"
    assert choose_master("local[1]")[0] == "local[1]"


def test_a_wrong_setting_is_named(folder):
    (folder / "headrace.toml").write_text("[spark]\nmaser = 'x'\n")
    with pytest.raises(ConfigError, match=r"spark\.maser"):
        choose_master(None)


@pytest.mark.parametrize(
    ("variable", "wishes", "ours"),
    [
        ("", {}, True),
        ("-Xmx1g", {"spark.driver.defaultJavaOptions": "-ea"}, True),
        ("-XX:+UseZGC", {}, False),
        ("", {"spark.driver.defaultJavaOptions": "-ea -XX:+UseG1GC"}, False),
    ],
)
def test_the_collector_is_ours_unless_somebody_chose_one(monkeypatch, variable, wishes, ours):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", variable)
    options = _settings([], LOCAL_MASTER, wishes)["spark.driver.extraJavaOptions"]
    assert ("-XX:+UseParallelGC" in options) == ours
    assert "GC" not in _settings([], "spark://far:7077", wishes)["spark.driver.extraJavaOptions"]
