"""Folders: the variable, else the system's convention, else the usual place in the home folder."""

from pathlib import Path

import pytest

from headrace.config import Places


def test_without_variables_the_usual_places_are_meant(monkeypatch):
    monkeypatch.setenv("HOME", "/home/anna")
    places = Places.from_environment({})
    assert places.home == Path("/home/anna/.local/share/headrace")
    assert places.cache == Path("/home/anna/.cache/headrace")


def test_the_systems_convention_comes_before_the_usual_places():
    places = Places.from_environment({"XDG_DATA_HOME": "/data", "XDG_CACHE_HOME": "/cache"})
    assert (places.home, places.cache) == (Path("/data/headrace"), Path("/cache/headrace"))


def test_headraces_own_variables_come_first():
    places = Places.from_environment(
        {
            "HEADRACE_HOME": "/mine",
            "HEADRACE_CACHE": "/jars",
            "XDG_DATA_HOME": "/data",
            "XDG_CACHE_HOME": "/cache",
        }
    )
    assert (places.home, places.cache) == (Path("/mine"), Path("/jars"))
    assert places.clusters == Path("/mine/clusters")


def test_an_empty_variable_counts_as_not_set():
    places = Places.from_environment({"HEADRACE_HOME": "", "XDG_DATA_HOME": "/data"})
    assert places.home == Path("/data/headrace")


@pytest.mark.parametrize("given", ["here", "~/there"])
def test_places_do_not_depend_on_where_a_later_command_runs(given):
    places = Places.from_environment({"HEADRACE_HOME": given, "HEADRACE_CACHE": given})
    assert places.home.is_absolute()
    assert places.cache.is_absolute()
    assert "~" not in str(places.home)


def test_the_environment_of_this_process_is_the_default(tmp_path):
    assert Places.from_environment() == Places(tmp_path / "home", tmp_path / "cache")
