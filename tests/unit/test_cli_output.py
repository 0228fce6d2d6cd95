"""Results on stdout as a table or JSON; progress on stderr."""

import json
from decimal import Decimal

import pytest

from headrace.cli.consume import _text, _time
from headrace.cli.output import Output, grid, show
from headrace.cli.progress import TerminalProgress

DOCUMENT = [{"name": "a", "count": 1}, {"name": "b", "count": None}]


@pytest.fixture
def shown(capfdbinary):
    def show_it(document, output: Output, table=lambda: "table") -> str:
        show(document, output, table)
        return capfdbinary.readouterr().out.decode()

    return show_it


def test_json_is_one_document(shown):
    assert json.loads(shown(DOCUMENT, Output.json)) == DOCUMENT


@pytest.mark.parametrize("output", [Output.json, Output.ndjson])
def test_what_json_does_not_know_becomes_text(shown, output):
    document = {"by partition": {0: Decimal("1.50")}}
    assert json.loads(shown(document, output)) == {"by partition": {"0": "1.50"}}


def test_ndjson_is_a_line_for_each_document(shown):
    lines = shown(DOCUMENT, Output.ndjson).splitlines()
    assert [json.loads(line) for line in lines] == DOCUMENT
    assert json.loads(shown(DOCUMENT[0], Output.ndjson)) == DOCUMENT[0]


def test_a_table_is_drawn_only_when_wanted(shown):
    def never():
        raise AssertionError("drawn though nobody wanted it")

    assert shown(DOCUMENT, Output.json, never)
    assert "table" in shown(DOCUMENT, Output.table)


def test_cells_are_written_for_people(shown):
    row = (None, True, False, 1234567, 1.5, "[bold]text[/]")
    text = shown(None, Output.table, lambda: grid("abcdef", [row], "title"))
    for cell in ("-", "yes", "no", "1,234,567", "1.50", "[bold]text[/]", "title"):
        assert cell in text


def test_heads_and_titles_are_no_markup(shown):
    heads = ("split(value,'[/]')", ">[bold]")
    text = shown(None, Output.table, lambda: grid(heads, [(1, 2)], "of [/]"))
    for part in ("split(value,'[/]')", " [bold]", "of [/]"):
        assert part in text


def test_a_wide_table_is_not_folded_when_it_goes_into_a_pipe(shown):
    text = shown(None, Output.table, lambda: grid(("a", "b"), [("x" * 70, "y" * 70)]))
    assert "x" * 70 in text
    assert "y" * 70 in text


# --- records for people ---


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (b"", ""),
        (b"plain", "plain"),
        (b"a\nb\x1b[31m", "a\\nb\\x1b[31m"),
        (b"\xff", "\\xff"),
        ("größe".encode(), "größe"),
    ],
)
def test_a_value_never_disturbs_the_terminal(value, text):
    assert _text(value, None) == text


def test_a_long_key_is_cut_to_its_column():
    assert _text(b"x" * 30, 20) == "x" * 19 + "…"


def test_a_time_is_shown_to_the_millisecond_and_no_time_as_a_dash():
    assert _time(1_570_000_000_007) == "2019-10-02 07:06:40.007"
    assert _time(-1) == "-"


# --- progress ---


def test_progress_goes_to_stderr_as_lines(capsys):
    with TerminalProgress() as progress:
        progress.step("starting")
        progress.warn("slowly")
        progress.begin("fetching", 4_000_000)
        for _ in range(4):
            progress.advance(1_000_000)
        progress.end()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "· starting",
        "warning: slowly",
        "· fetching (4 MB)",
        *("  25 %", "  50 %", "  75 %", "  100 %"),
    ]


def test_progress_that_falls_back_is_not_told_twice(capsys):
    progress = TerminalProgress()
    progress.begin("fetching", 100)
    for amount in (60, -60, 60, 40):
        progress.advance(amount)
    assert capsys.readouterr().err.splitlines()[1:] == ["  50 %", "  100 %"]
