"""Examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import headrace

MODULES = sorted(m.name for m in pkgutil.walk_packages(headrace.__path__, "headrace."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
