"""``dirigo graph``, as a user meets it."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dirigo.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
FLOWS = """
import dirigo as dg
print("noise")
orders = dg.Dataflow("orders")
orders.source(dg.from_iterable([], {"a": int})).key_by("a").aggregate(n=dg.count()).sink(dg.to_memory())
returns = dg.Dataflow("returns")
returns.source(dg.from_iterable([], {"[red]a[/]": str})).filter(dg.col("[red]a[/]") == "x" * 70).sink(dg.to_memory())
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flows.py"
    path.write_text(FLOWS)
    return path


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["graph", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_both_drawings_of_all_flows_are_printed_and_nothing_else(file: Path) -> None:
    out, errors = run(file)
    assert out.startswith("orders: 3 stages, 9 actors\n\n╭─ rows ─")
    assert out.count("```mermaid\nflowchart TB\n") == 2
    assert out.endswith("```\n")
    assert errors == "noise\n"


def test_one_drawing_of_one_flow_is_printed_as_it_is(file: Path) -> None:
    text, _ = run(file, "--flow", "returns", "--format", "text")
    assert text.startswith("returns: ")
    assert f"[red]a[/] == '{'x' * 70}" in text  # neither read as colours nor broken anew
    assert "flowchart" not in text
    mermaid, _ = run(file, "--flow", "returns", "--format", "mermaid")
    assert mermaid.startswith("flowchart TB\n")
    assert "```" not in mermaid


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--flow", "[none]"), "there is no dataflow '[none]' in "),
        (("--flow", "[none]"), "flows.py; it has orders, returns."),
        (("--format", "mermaid"), "a Mermaid file holds one drawing; choose with --flow: orders, returns."),
    ],
)
def test_bad_choices_give_one_line(file: Path, arguments: tuple[str, ...], sentence: str) -> None:
    out, errors = run(file, *arguments, code=2)
    assert out == ""
    (line,) = errors.removeprefix("noise\n").splitlines()
    assert line.startswith("error: ")
    assert sentence in line


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a = [][1]\n", "line 1: IndexError: list index out of range."),
        ("import dirigo as dg\nflow = dg.Dataflow('open')\n", "dataflow 'open' has no sink"),
        ("a = 1\n", "assign it to a name at the top level"),
    ],
)
def test_a_bad_file_gives_one_line(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    out, errors = run(path, code=2)
    assert out == ""
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    assert sentence in line


def test_a_file_that_is_not_there_gives_one_line(tmp_path: Path) -> None:
    _, errors = run(tmp_path / "none.py", code=2)
    assert errors == f"error: there is no file {tmp_path / 'none.py'}; check its name.\n"


def test_help_has_an_example_and_every_option_is_documented() -> None:
    out, _ = run("--help")
    assert "dirigo graph shop.py --flow orders --format mermaid > orders.mmd" in out
    section = PAGE.read_text().split("## `dirigo graph`")[1].split("\n## ")[0]
    for option in set(re.findall(r"--[a-z]+", out)) - {"--help"}:
        assert f"`{option}" in section
