"""The command line, as a user meets it."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dirigo import __version__
from dirigo.cli import app
from dirigo.kernel.mailbox import TRANSITIONS
from dirigo_lab.pages.mailbox_page import mailbox_page

ROOT = Path(__file__).parents[2]


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_the_version_is_told() -> None:
    assert run("--version").strip() == f"dirigo {__version__}"


def test_a_world_is_explored_and_its_figures_are_written(tmp_path: Path) -> None:
    output = run("verify", "--world", "fork", "--processes", "1", "--json", str(tmp_path / "deep" / "verify.json"))
    assert "fork" in output
    report = json.loads((tmp_path / "deep" / "verify.json").read_text())
    (world,) = report["worlds"]
    assert set(world) == {"name", "states", "transitions", "longest", "verdict"}
    assert world["name"] == "fork"
    assert world["verdict"] == "holds"
    assert world["states"] > 1_000


def test_a_violation_ends_non_zero_with_a_story_and_a_command_that_replays_it() -> None:
    output = run("verify", "--world", "fork", "--mutant", "merge-twice", code=1)
    assert "fork violates consolidated-state" in output
    assert "  1. lessor U@w1 receives" in output
    command = re.search(r"Replay it with: dirigo (.*)", output)
    assert command is not None
    assert "violation: consolidated-state" in run(*command[1].split())


def test_random_runs_alone_can_be_asked_for() -> None:
    output = run("verify", "--random", "30", "--seed", "7", "--processes", "1")
    assert "30 random runs, no violation" in output
    assert "Worlds" not in output


def test_worlds_and_mutants_are_listed() -> None:
    output = run("verify", "--list")
    assert "two-barriers" in output
    assert "merge-twice" in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--world", "nowhere"), "there is no world 'nowhere'"),
        (("--mutant", "nothing"), "there is no mutant 'nothing'"),
        (("--world", "fork", "--replay", "x.y"), "a path is numbers with dots between them, but got 'x.y'"),
        (("--world", "fork", "--replay", "999"), "step 1 picks move 999"),
        (("--replay", "1"), "--replay needs exactly one --world"),
    ],
)
def test_bad_input_gives_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    output = run("verify", *arguments, code=2)
    assert output.startswith("error:")
    assert sentence in " ".join(output.split())


def test_the_mailbox_page_is_not_stale() -> None:
    page = ROOT / "docs" / "internals" / "mailbox.md"
    assert page.read_text() == mailbox_page(), "run 'make docs'"
    for row in TRANSITIONS:
        assert f"{row.source.value} --> {row.target.value}: {row.event.value}" in page.read_text()


def test_docs_are_written_and_checked(tmp_path: Path) -> None:
    (tmp_path / "internals").mkdir()
    assert "is stale" in " ".join(run("docs", "--into", str(tmp_path), "--check", code=2).split())
    assert "wrote" in run("docs", "--into", str(tmp_path))
    assert "up to date" in " ".join(run("docs", "--into", str(tmp_path), "--check").split())
    assert "there is no folder" in run("docs", "--into", str(tmp_path / "none"), code=2)


def test_every_option_of_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for command in ("demo", "verify", "bench", "docs"):
        assert f"## `dirigo {command}`" in page
        options = set(re.findall(r"--[a-z]+", run(command, "--help"))) - {"--help"}
        section = page.split(f"## `dirigo {command}`")[1].split("\n## ")[0]
        missing = {option for option in options if f"`{option}" not in section}
        assert not missing
