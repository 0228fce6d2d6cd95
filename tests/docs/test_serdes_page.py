"""docs/serdes.md runs as it stands, from top to bottom; a registry over HTTP stands in for one."""

import re
import sys
from pathlib import Path

import pytest

from headrace.cli.main import run
from support.fake_registry import FakeRegistry

PAGE = (Path(__file__).parents[2] / "docs" / "serdes.md").read_text("utf-8")


@pytest.fixture
def registry():
    server = FakeRegistry()
    yield server
    server.stop()


def test_the_page_runs_as_it_stands(registry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "alerts", raising=False)
    (schema,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    Path("alert.avsc").write_text(schema)
    assert run(["schema", "classes", "alert.avsc", "--out", "alerts.py"]) == 0
    snippets = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {"__name__": "serdes_page"}
    for snippet in snippets:
        exec(compile(snippet.replace("http://localhost:8081", registry.url), "page", "exec"), names)
    assert len(snippets) == 7
    assert registry.versions == {"clicks-value": [1]}
