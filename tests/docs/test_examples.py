"""Runs the examples of the documentation: what a page says happens, happens.

The Python blocks of a page run one after the other, as one program, in an empty folder. These are the rules for pages:

- A ```` ```text ```` block right behind a Python block is exactly what the block prints. If the block is to fail, the text
  ends with ``NameOfTheError: its message``.
- ```` ```python title="job.py" ```` is saved under that name, and run as well.
- In a ```` ```console ```` block, ``$ `` stands before what the reader types: ``dirigo``, ``python`` or ``pytest``. It
  must end without an error, and print what is shown below it, if anything is; ``...`` stands for any text.
- Nothing is left out: a Python block has no other marks.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dirigo.spark.service import file as service_file
from dirigo.spark.service import service
from docs.markdown import Block, Command, blocks_of, commands_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md")), *sorted((ROOT / "docs/reference").glob("*.md"))]
PROGRAMS = {"dirigo": ["-c", "from dirigo.cli import main; main()"], "python": [], "pytest": ["-m", "pytest"]}
TUTORIAL = ROOT / "docs/guide/tutorial.md"
LONG = [
    ROOT / "docs/guide/cluster.md",
    ROOT / "docs/guide/spark.md",
    TUTORIAL,
]  # several Spark sessions, one after the other
SPARK = re.compile(r"\bdg\.(Cluster|connect)\(|^\$ dirigo (?!graph )", re.MULTILINE)
WITH_EXAMPLES = [page for page in PAGES if any(block.language in ("python", "console") for block in blocks_of(page))]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An empty program in an empty folder. It is a real module, because annotations are looked up in modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIRIGO_HOME", str(tmp_path / ".dirigo"))
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    yield module
    for name in service_file.living():  # of an example that went wrong
        found = service_file.read(name)
        assert found is not None
        service.stop(found)
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]  # a saved file that an example imported


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.acceptance] * (page in LONG)) for page in WITH_EXAMPLES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_examples_of_a_page_do_what_it_says(page: Path, program: ModuleType) -> None:
    run_blocks(blocks_of(page), program, page)


def test_the_steps_of_the_tutorial_without_spark_do_what_it_says(program: ModuleType) -> None:
    """The quick part of the tutorial, which is long as a whole."""
    quick = without_spark(blocks_of(TUTORIAL))
    assert [block.title for block in quick if block.title][:2] == ["first.py", "highest.py"]
    run_blocks(quick, program, TUTORIAL)


def without_spark(blocks: list[Block]) -> list[Block]:
    """The examples that start no Spark; one that does goes with the output below it."""
    kept: list[Block] = []
    is_left_out = False
    for block in blocks:
        is_output = block.language == "text" and block.is_after_blocks
        is_left_out = is_left_out if is_output else bool(SPARK.search(block.text))
        if not is_left_out:
            kept.append(block)
    return kept


def run_blocks(blocks: list[Block], program: ModuleType, page: Path) -> None:
    """Run all examples as one program, and compare what they print with what the page shows."""
    for number, block in enumerate(blocks):
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        if block.language == "python":
            follower = blocks[number + 1] if number + 1 < len(blocks) else None
            has_output = follower is not None and follower.language == "text" and follower.is_after_blocks
            printed = run_python(block, program, page, may_fail=has_output)
            if has_output:
                assert follower is not None
                assert printed == follower.text, f"{where}: the block prints something else than the page shows"
            else:
                assert printed == "", f"{where}: the block prints something, but the page does not show it"
        elif block.language == "console":
            for command in commands_of(block):
                run_command(command, f"{page.relative_to(ROOT)}, line {command.line}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_is_run(page: Path) -> None:
    for block in blocks_of(page):
        if block.language in ("python", "console"):
            assert not block.marks, (
                f"{page.name}, line {block.line}: no example is left out, so what does '{block.marks}' mean?"
            )
        assert block.language not in ("py", "python3", "pycon", "sh", "bash", "shell"), (
            f"{page.name}, line {block.line}: call it python or console, so that it is tested"
        )


def test_a_page_is_read_as_it_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '# x\n\n```python title="a.py"\nprint(1)\n```\n\n```text\n1\n```\n\nthen\n\n```console\n$ dirigo a\nb\n```\n'
    )
    python, text, console = blocks_of(page)
    assert (python.language, python.title, python.marks, python.text, python.line) == ("python", "a.py", "", "print(1)\n", 4)
    assert text.is_after_blocks
    assert not console.is_after_blocks
    assert commands_of(console) == [Command("dirigo a", "b\n", 14)]


def test_an_ellipsis_stands_for_anything() -> None:
    assert agrees("a\nb\nc in 3 s\n", "a\n...\nc in ... s\n")
    assert not agrees("a\nb\nd\n", "a\n...\nc\n")
    assert not agrees("a\n", "a\nb\n")


def run_python(block: Block, program: ModuleType, page: Path, may_fail: bool) -> str:
    """Run one block in the program, and return what it printed. Its line numbers are those of the page."""
    if block.title is not None:
        Path(block.title).write_text(block.text)
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, program.__dict__)
        except Exception as error:
            if not may_fail:
                raise
            printed.write(f"{type(error).__name__}: {error}\n")
    return printed.getvalue()


def run_command(command: Command, where: str) -> None:
    """Run what a reader is told to type."""
    name, *arguments = shlex.split(command.arguments)
    assert name in PROGRAMS, f"{where}: '{name}' cannot be tested; use one of {', '.join(PROGRAMS)}"
    finished = subprocess.run(
        [sys.executable, *PROGRAMS[name], *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
    )
    assert finished.returncode == 0, f"{where}: '{command.arguments}' failed:\n{finished.stdout}{finished.stderr}"
    if command.shown.strip():
        printed, shown = without_trailing_blanks(finished.stdout), without_trailing_blanks(command.shown)
        assert agrees(printed, shown), (
            f"{where}: '{command.arguments}' prints something else than the page shows:\n{printed}"
        )


def without_trailing_blanks(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def agrees(printed: str, shown: str) -> bool:
    """Whether a text is as shown, where ``...`` stands for anything."""
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)
