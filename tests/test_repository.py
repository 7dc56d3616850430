"""What holds for the repository as a whole: its front page, its links, what its files may contain, its pure layers."""

import ast
import re
import subprocess
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import dirigo as dg

ROOT = Path(__file__).resolve().parent.parent
LINES_READ_IN_A_SITTING = 600
# Every address that a file of ours may name. A package registry is never one of them: clients know their own.
ADDRESSES_ALLOWED = {"127.0.0.1", "www.apache.org", "www.nexmark.com", "www.nexmark.example", "www.w3.org"}
# What reaches the outside world without an import.
IMPURE_BUILTINS = {"__import__", "breakpoint", "input", "open", "print"}


def repository_files() -> list[Path]:
    """All files that are, or are about to be, under version control; outside a clone, all that nobody generated."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        files = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        generated = {".git", ".venv", "build", "dist", "__pycache__", ".hypothesis"}
        files = [
            file
            for file in ROOT.rglob("*")
            if not any(part in generated or part.endswith("_cache") for part in file.relative_to(ROOT).parts)
        ]
    return sorted(file for file in files if file.is_file())


def texts(suffix: str = "") -> Iterator[tuple[str, str]]:
    """Name and content of every text file whose name ends in `suffix`."""
    for file in repository_files():
        if not file.name.endswith(suffix):
            continue
        try:
            yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture, say
            continue


# --- the front page -------------------------------------------------------------------------------------------------


def code_blocks(markdown: str) -> list[str]:
    return re.findall(r"^```[^\n]*\n(.*?)^```", markdown, flags=re.MULTILINE | re.DOTALL)


def test_quick_start_is_exactly_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quick_start = re.search(r"^## Quick start\n(.*?)^## ", readme, flags=re.MULTILINE | re.DOTALL)
    assert quick_start is not None
    commands = [line.split("#")[0].strip() for block in code_blocks(quick_start[1]) for line in block.splitlines()]
    assert commands == ["make demo", "make test"]


def test_every_make_target_named_in_a_page_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    named = {(page, target) for page, text in texts(".md") for target in re.findall(r"`make ([a-z-]+)", text)}
    assert "test" in {target for _, target in named}
    assert {(page, target) for page, target in named if target not in targets} == set()


# --- links ----------------------------------------------------------------------------------------------------------


def anchors(markdown: str) -> set[str]:
    """The fragment of every heading, made as code hosting sites make it."""
    without_code = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.*?)\s*$", without_code, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    without_code = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (fragment and fragment not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def test_every_relative_link_resolves() -> None:
    pages = [name for name, _ in texts(".md")]
    assert "README.md" in pages
    broken = {name: broken_links(ROOT / name) for name in pages}
    assert {name: links for name, links in broken.items() if links} == {}


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Two words\n[a](#two-words) [b](page.md) [c](no/such.md) [d](page.md#nowhere) `[e](x)`\n")
    assert broken_links(page) == ["no/such.md", "page.md#nowhere"]


# --- what no file may contain ---------------------------------------------------------------------------------------


def things_of_one_machine(text: str) -> list[str]:
    """Paths on somebody's own machine, and addresses (package registries above all) that we do not allow."""
    paths = re.findall(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/[\w.]+", text)
    hosts = re.findall(r"\bhttps?://([\w-]+(?:\.[\w-]+)+)", text)
    settings = re.findall(r"\b(?:extra-)?index[-_]url\b|\bfind[-_]links\b", text)
    return paths + [host for host in hosts if host not in ADDRESSES_ALLOWED] + settings


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = {name: things_of_one_machine(text) for name, text in texts()}
    assert {"pyproject.toml", "constraints.txt", "Makefile"} <= found.keys()
    assert {name: things for name, things in found.items() if things} == {}


@pytest.mark.parametrize(
    ("parts", "noticed"),
    [
        (("see /ro", "ot/notes.txt"), True),
        (("see /ho", "me/ada/notes.txt"), True),
        (("from https:/", "/registry.example/simple"), True),
        (("--index", "-url somewhere"), True),
        (("a file in src/ro", "ot/notes.txt"), False),
        (("http:/", "/127.0.0.1:8080/"), False),
    ],
)
def test_a_path_or_an_address_is_noticed(parts: tuple[str, str], noticed: bool) -> None:
    # In two parts, so that this file does not hold what it forbids.
    assert bool(things_of_one_machine("".join(parts))) is noticed


def test_constraints_are_exact_pins_and_cover_what_we_ask_for() -> None:
    def normalised(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.+!]+", pin)] == []

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked_for = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in project["project"]["optional-dependencies"].values():
        asked_for += extra
    names = {normalised(re.split(r"[^\w.-]", requirement)[0]) for requirement in asked_for} - {project["project"]["name"]}
    assert names - {normalised(pin.split("==")[0]) for pin in pins} == set()


def test_every_file_can_be_read_in_a_sitting() -> None:
    lengths = {name: len(text.splitlines()) for name, text in texts(".py")}
    assert "src/dirigo/__init__.py" in lengths
    assert {name: length for name, length in lengths.items() if length > LINES_READ_IN_A_SITTING} == {}


# --- the house ------------------------------------------------------------------------------------------------------


PACKAGES = {"dirigo": ROOT / "src" / "dirigo", "dirigo_lab": ROOT / "lab" / "src" / "dirigo_lab"}
MODULES_IN_A_FOLDER_MOST = 15


def modules() -> list[Path]:
    return [file for folder in PACKAGES.values() for file in sorted(folder.rglob("*.py"))]


def defined_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Public names of classes that more than one module defines, and those modules."""
    homes = defaultdict(list)
    for name, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    return {name: places for name, places in homes.items() if len(places) > 1}


def test_no_public_class_name_is_defined_twice() -> None:
    sources = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in modules()}
    assert "src/dirigo/kernel/worker.py" in sources
    assert defined_twice(sources) == {}


def test_a_name_that_is_defined_twice_is_noticed() -> None:
    sources = {"a.py": "class One: ...\nclass _Own: ...", "b.py": "class One: ...\nclass _Own: ...\nclass Two: ..."}
    assert defined_twice(sources) == {"One": ["a.py", "b.py"]}


def test_a_folder_is_taken_in_at_a_glance() -> None:
    loose = Counter(file.parent.relative_to(ROOT).as_posix() for file in modules() if file.name != "__init__.py")
    assert "src/dirigo/kernel" in loose
    assert {folder: count for folder, count in loose.items() if count > MODULES_IN_A_FOLDER_MOST} == {}


def test_every_package_says_what_it_is() -> None:
    folders = {file.parent for file in modules()}
    silent = [folder for folder in folders if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))]
    assert silent == []


def test_the_public_names_are_listed_once_and_are_all_there() -> None:
    assert sorted(set(dg.__all__)) == sorted(dg.__all__)
    assert {name for name in dir(dg) if not name.startswith("_")} == set(dg.__all__)
    for name in dg.__all__:
        assert getattr(dg, name) is not None


# --- purity ---------------------------------------------------------------------------------------------------------


def purity_contract() -> tuple[list[Path], set[str]]:
    """The folders that must be pure and the modules that they must not import, as import-linter is told."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(contract for contract in settings["contracts"] if "time" in contract.get("forbidden_modules", []))
    folders = [ROOT.joinpath("src", *module.split(".")) for module in contract["source_modules"]]
    return folders, set(contract["forbidden_modules"])


def impurities(source: str, forbidden: set[str]) -> list[str]:
    """Every import of a forbidden module and every use of an impure builtin, as `line: what`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                found += [(node.lineno, alias.name) for alias in node.names]
            case ast.ImportFrom(module=str(module)):
                found.append((node.lineno, module))
            case ast.Name(id=name) if name in IMPURE_BUILTINS:
                found.append((node.lineno, name))
    suspects = forbidden | IMPURE_BUILTINS | {"importlib"}
    return [f"{line}: {name}" for line, name in found if name.split(".")[0] in suspects]


def test_kernel_scheduling_and_state_are_pure() -> None:
    folders, forbidden = purity_contract()
    assert {folder.name for folder in folders} == {"kernel", "scheduling", "state"}
    assert {"asyncio", "random", "socket", "threading", "time"} <= forbidden
    for folder in folders:
        files = sorted(folder.rglob("*.py"))
        assert files, f"nothing to check in {folder.name}"
        found = {file.name: impurities(file.read_text(encoding="utf-8"), forbidden) for file in files}
        assert {name: things for name, things in found.items() if things} == {}, folder.name


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", ["1: time"]),
        ("from time import monotonic as tick", ["1: time"]),
        ("def f():\n    import time.sub", ["2: time.sub"]),
        ("data = open('x').read()", ["1: open"]),
        ("import importlib", ["1: importlib"]),
        ("import timeit_like\nmailbox.open()\ntime = 3", []),
    ],
)
def test_an_impurity_is_noticed(source: str, found: list[str]) -> None:
    assert impurities(source, {"time"}) == found
