"""Finding dataflows in a user's file, and what is said when there are none."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

import dirigo as dg
from dirigo.flow.api.files import load_flows

FLOW = """
import dirigo as dg
flow = dg.Dataflow("first")
flow.source(dg.from_iterable([{"a": 1}], {"a": int})).sink(dg.to_memory())
"""


def written(folder: Path, text: str, name: str = "shop.py") -> Path:
    path = folder / name
    path.write_text(dedent(text), encoding="utf-8")
    return path


def sentence(path: Path) -> str:
    """The one sentence that loading a file ends with."""
    with pytest.raises(dg.FlowError) as error:
        load_flows(path)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_the_flows_of_a_file_come_in_the_order_of_their_definition(tmp_path: Path) -> None:
    path = written(tmp_path, FLOW + 'another = dg.Dataflow("second")\nzebra = flow\nname = "no flow"\n')
    assert [flow.name for flow in load_flows(path)] == ["first", "second"]


def test_the_part_for_scripts_does_not_run(tmp_path: Path) -> None:
    path = written(tmp_path, FLOW + 'if __name__ == "__main__":\n    raise RuntimeError("it ran")\n')
    assert [flow.name for flow in load_flows(path)] == ["first"]


def test_files_beside_it_can_be_imported_and_the_path_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 'NAME = "from_beside"', "beside_the_shop.py")
    path = written(tmp_path, "import dirigo as dg\nfrom beside_the_shop import NAME\nflow = dg.Dataflow(NAME)", "x.py")
    before = list(sys.path)
    monkeypatch.chdir(tmp_path.parent)
    assert [flow.name for flow in load_flows(path.relative_to(tmp_path.parent))] == ["from_beside"]
    assert sys.path == before
    sys.modules.pop("beside_the_shop")


def test_a_file_that_changed_is_read_again_and_nothing_is_left_in_its_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):  # of the same length, within the same second
        assert [flow.name for flow in load_flows(written(tmp_path, FLOW.replace("first", name)))] == [name]
    assert [path.name for path in tmp_path.iterdir()] == ["shop.py"]


def test_dataclasses_and_annotations_of_the_file_work(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        from __future__ import annotations
        from dataclasses import dataclass
        import dirigo as dg

        @dataclass
        class Price:
            euros: float

        def in_euros(row) -> Price:
            return Price(row.cents / 100)

        flow = dg.Dataflow("prices")
        flow.source(dg.from_iterable([{"cents": 1}], {"cents": int})).map(in_euros).sink(dg.to_memory())
        """,
    )
    (flow,) = load_flows(path)
    assert [node.work.schema.names for node in flow.nodes][1] == ["euros"]


def test_the_file_is_compiled_as_if_alone(tmp_path: Path) -> None:
    path = written(tmp_path, FLOW + "def f(x: int): ...\nassert f.__annotations__['x'] is int\n")
    assert len(load_flows(path)) == 1


# --- what can be wrong ---------------------------------------------------------------------------------------------------


def test_a_file_that_is_none(tmp_path: Path) -> None:
    assert sentence(tmp_path / "none.py") == f"there is no file {tmp_path / 'none.py'}; check its name."
    assert "is a folder; name a Python file in it." in sentence(tmp_path)
    assert "is not a Python file; its name must end in .py." in sentence(written(tmp_path, FLOW, "shop.txt"))


def test_a_file_without_a_flow(tmp_path: Path) -> None:
    path = written(tmp_path, "import dirigo as dg\ndef build():\n    return dg.Dataflow('inside')\n")
    assert sentence(path) == (f"there is no dataflow in {path}; assign it to a name at the top level: flow = Dataflow(...).")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\nb = a / 0\n", "line 2: ZeroDivisionError: division by zero."),
        ("def f():\n    raise ValueError('two\\nlines')\n\nf()\n", "line 2: ValueError: two lines."),
        ("import json\n\njson.loads('{')\n", "line 3: JSONDecodeError: "),
        ("\nimport no_such_module\n", "line 2: ModuleNotFoundError: No module named 'no_such_module'."),
        ("import sys\nsys.exit()\n", "line 2: SystemExit."),
        ("a = 1\nb = (\n", "line 2: SyntaxError: '(' was never closed."),
        ("if True:\na = 1\n", "line 2: IndentationError: "),
    ],
)
def test_a_file_that_raises_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    before = set(sys.modules)
    assert f"{path}, {said}" in sentence(path)
    assert not [name for name in set(sys.modules) - before if "dirigo_flows" in name]


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "zero.py").write_bytes(b"a = 1\0")
    assert "zero.py" in sentence(tmp_path / "zero.py")
    (tmp_path / "latin.py").write_bytes("a = 'ü'".encode("latin-1"))
    assert "latin.py" in sentence(tmp_path / "latin.py")


def test_a_mistake_in_building_the_flow_is_passed_on(tmp_path: Path) -> None:
    path = written(tmp_path, "import dirigo as dg\nflow = dg.Dataflow('no spaces')\n")
    assert sentence(path) == "a dataflow needs a name of letters, digits and . _ + - only, not 'no spaces'."
