"""The docs say what is so: snippets run, commands exist, settings match the code."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from headrace.cli.main import app
from headrace.config.profiles import Profile, ProfileFile, SparkSection, read_profiles
from headrace.labs import find_labs

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text("utf-8"), re.DOTALL)


def headrace_commands(text: str) -> list[list[str]]:
    """Every call of headrace in a piece of shell, as words without options and operands."""
    calls = []
    for line in text.splitlines():
        for part in line.split("|"):
            words = shlex.split(part, comments=True)
            if words[:1] == ["headrace"]:
                calls.append(words[1:])
    return calls


def resolve(words: list[str]) -> tuple[object, list[str]]:
    """The command that these words call, and the options given to it."""
    command = typer.main.get_command(app)
    options = [word for word in words if word.startswith("-")]
    rest = [word for word in words if not word.startswith("-")]
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]  # type: ignore[attr-defined]
    return command, options


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_shown_exists_with_its_options(path):
    for block in blocks(path, "sh"):
        for words in headrace_commands(block):
            command, options = resolve(words)
            assert not hasattr(command, "commands"), f"{words} is no command"
            known = {name for parameter in command.params for name in parameter.opts}
            assert set(options) <= known, f"{words}: unknown options"


def test_cli_page_is_what_the_commands_say():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "cli_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_readme_program_runs_as_pasted():
    (program, *_) = blocks(ROOT / "README.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    for name in ("Ada", "Grace", "Edsger"):
        assert f"b'hello {name}'" in done.stdout


@pytest.mark.long(30)
def test_the_program_about_the_sink_runs_as_pasted():
    (program,) = blocks(ROOT / "docs" / "ingest.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert "1000 records" in done.stdout


@pytest.mark.parametrize("page", ["producers.md", "consumers.md"])
def test_every_program_about_clients_runs_as_pasted(page):
    for program in blocks(ROOT / "docs" / page, "python"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr


def test_readme_test_passes_as_pasted(tmp_path):
    _, test = blocks(ROOT / "README.md", "python")
    (tmp_path / "test_pasted.py").write_text(test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_variable_in_the_code_is_documented_and_the_other_way_round():
    pattern = re.compile(r"\bHEADRACE_[A-Z_]+\b")
    sources = (ROOT / "src").rglob("*.py")
    used = {name for path in sources for name in pattern.findall(path.read_text("utf-8"))}
    documented = set(pattern.findall((ROOT / "docs" / "settings.md").read_text("utf-8")))
    assert used == documented


def test_every_field_of_headrace_toml_is_documented():
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    of_spark = {f"spark.{name}" for name in SparkSection.model_fields}
    fields = {*Profile.model_fields, *ProfileFile.model_fields, *of_spark} - {"profiles", "spark"}
    documented = set(re.findall(r"^\| `([a-z.]+)` \|", page, re.MULTILINE))
    assert fields == documented


def test_headrace_toml_in_the_docs_is_valid(tmp_path):
    (example,) = blocks(ROOT / "docs" / "settings.md", "toml")
    path = tmp_path / "headrace.toml"
    path.write_text(example)
    file = read_profiles(path)
    assert file.default in file.profiles


def test_every_lab_is_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert [lab.name for lab in find_labs() if lab.name not in changelog] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path):
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text("utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []
