"""Rows out of files with one JSON object per line."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.errors import FlowError
from dirigo.flow.sources import BadRow, Source, Split, from_json_lines
from dirigo.flow.sources.files.line_blocks import BLOCK_BYTES, LINE_LIMIT_BYTES


def read_split(split: Split, rows_max: int = 1000) -> tuple[list[dict[str, Any]], list[BadRow]]:
    rows: list[dict[str, Any]] = []
    bad: list[BadRow] = []
    while not split.ended:
        piece = split.read(rows_max)
        if piece is not None:
            assert piece.rows.num_rows + len(piece.bad) <= rows_max
            rows += piece.rows.to_pylist()
            bad += piece.bad
    split.close()
    return rows, bad


def read_all(source: Source, rows_max: int = 1000) -> tuple[list[dict[str, Any]], list[BadRow]]:
    (split,) = source.splits(1)
    return read_split(split, rows_max)


def test_columns_and_types_are_worked_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1, "b": "x", "c": null}\n{"a": "two"}\nno json\n{"a": 3, "b": "z"}')
    with pytest.raises(FlowError, match="cannot be worked out"):
        from_json_lines(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"a": 1, "b": "x", "c": null}\nno json\nnull\n{"a": 2, "b": "y"}')
    source = from_json_lines(tmp_path / "a.jsonl")
    assert source.schema == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.string())])
    rows, bad = read_all(source)
    assert rows == [{"a": 1, "b": "x", "c": None}, {"a": 2, "b": "y", "c": None}]
    assert [each.row for each in bad] == ["no json", "null"]


def test_all_types_that_json_has_no_form_for(tmp_path: Path) -> None:
    line = {
        "at": "2026-01-02T03:04:05.678901Z",
        "day": "2026-01-02",
        "amount": "1.5",
        "raw": "YWJj",
        "tags": ["x", None],
        "place": {"x": 1, "since": "2026-01-02"},
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(dict.fromkeys(line)) + "\n{}\n")
    schema = {
        "at": datetime,
        "day": date,
        "amount": pa.decimal128(10, 2),
        "raw": bytes,
        "tags": list[str],
        "place": pa.struct([("x", pa.int64()), ("since", pa.date32())]),
    }
    rows, bad = read_all(from_json_lines(tmp_path, schema, time="at"))
    assert bad == []
    assert rows[0] == {
        "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
        "day": date(2026, 1, 2),
        "amount": Decimal("1.50"),
        "raw": b"abc",
        "tags": ["x", None],
        "place": {"x": 1, "since": date(2026, 1, 2)},
    }
    assert rows[1] == rows[2] == dict.fromkeys(line)


def test_lines_that_do_not_fit_are_bad_rows_with_their_place(tmp_path: Path) -> None:
    lines = [
        '{"a": 1, "b": "x"}',
        '{"a": "two", "b": "y"}',
        '{"a": 3, "b": "y"',
        "",
        "[1, 2]",
        "null",
        '{"a": 4, "b": 4}',
        '{"a": 5, "b": "x"} {"a": 6, "b": "x"}',
        '{"a": 1.5}',
        '{"a": 99999999999999999999}',
        '{"a": 7, "b": "} null", "other": [null]}',
        '{"a": 8, "b": "y"} null',
        '{"raw": "é"}',
        '{"raw": "Y"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    rows, bad = read_all(from_json_lines(tmp_path, {"a": int, "b": str, "raw": bytes}))
    assert [(row["a"], row["b"]) for row in rows] == [(1, "x"), (7, "} null")]
    assert {int(each.error.split(" line ")[1].split(":")[0]) for each in bad} == {2, 3, 5, 6, 7, 8, 9, 10, 12, 13, 14}
    assert len(bad) == 11
    assert all(lines[int(each.error.split(" line ")[1].split(":")[0]) - 1] == each.row for each in bad)
    assert any("the column 'a' holds \"two\", which is no int64" in each.error for each in bad)


def test_an_object_must_be_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a":\n1}\n{"a": 2}\n')
    rows, bad = read_all(from_json_lines(tmp_path, {"a": int}))
    assert rows == [{"a": 2}]
    assert len(bad) == 2


def test_a_missing_field_is_null_or_bad_as_the_schema_says(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    assert read_all(from_json_lines(tmp_path, {"a": int})) == ([{"a": 1}, {"a": None}], [])
    rows, bad = read_all(from_json_lines(tmp_path, pa.schema([pa.field("a", pa.int64(), nullable=False)])))
    assert rows == [{"a": 1}]
    assert [each.row for each in bad] == ['{"b": 2}']
    assert bad[0].error == "json_lines, a.jsonl, line 2: the column 'a' has no value."


def test_a_huge_line_is_a_bad_row_and_the_lines_around_it_come(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.write(b'{"a": "' + b"9" * (LINE_LIMIT_BYTES + 3 * BLOCK_BYTES) + b'"}\n{"a": "y"}\n')
        file.write(b'{"a": "' + b"9" * (2 * BLOCK_BYTES) + b'"}\n{"a": "z"}\n')
    rows, bad = read_all(from_json_lines(tmp_path, {"a": str}))
    assert [len(row["a"]) for row in rows] == [1, 2 * BLOCK_BYTES, 1]
    assert [each.error.split(":")[0] for each in bad] == ["json_lines, a.jsonl, line 1"]


JUNK = ["null", " null", "{", "}", "[]", "5", '{"a": "x"}', '"', "{}{}", "nul", '{"a": 1}null']


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(st.one_of(st.integers(0, 99), st.sampled_from(JUNK)), max_size=40))
def test_every_line_comes_out_once_good_or_bad(tmp_path_factory: pytest.TempPathFactory, lines: list[int | str]) -> None:
    folder = tmp_path_factory.mktemp("lines")
    text = "".join(f'{{"a": {line}}}\n' if isinstance(line, int) else line + "\n" for line in lines)
    (folder / "a.jsonl").write_text(text)
    rows, bad = read_all(from_json_lines(folder, {"a": int}), rows_max=7)
    assert [row["a"] for row in rows] == [line for line in lines if isinstance(line, int)]
    assert sorted(each.row for each in bad) == sorted(line for line in lines if isinstance(line, str))


@pytest.mark.parametrize("wanted", [1, 2, 3, 7])
def test_splits_cover_every_file_exactly_once(tmp_path: Path, wanted: int) -> None:
    for number in range(5):
        (tmp_path / f"{number}.jsonl").write_text("".join(f'{{"n": {number * 10 + each}}}\n' for each in range(10)))
    splits = from_json_lines(tmp_path).splits(wanted)
    assert len(splits) == min(wanted, 5)
    assert sorted(row["n"] for split in splits for row in read_split(split, 3)[0]) == list(range(50))


def test_empty_files_give_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "b.jsonl").write_text("\n\n")
    assert read_all(from_json_lines(tmp_path, {"a": int})) == ([], [])
    with pytest.raises(FlowError, match="give schema="):
        from_json_lines(tmp_path)


def test_what_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="there is no file or folder"):
        from_json_lines(tmp_path / "missing")
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(FlowError, match="bytes inside"):
        from_json_lines(tmp_path, {"a": list[bytes]})
