"""Rows out of CSV files."""

from __future__ import annotations

import gzip
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.errors import FlowError
from dirigo.flow.sources import BadRow, Source, Split, from_csv
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
    (tmp_path / "a.csv").write_text('n,price,name,nothing\n1,1.5,"x, y",\n2,,z,\n')
    source = from_csv(tmp_path / "a.csv")
    assert source.schema == pa.schema(
        [("n", pa.int64()), ("price", pa.float64()), ("name", pa.string()), ("nothing", pa.string())]
    )
    assert read_all(source) == (
        [
            {"n": 1, "price": 1.5, "name": "x, y", "nothing": ""},
            {"n": 2, "price": None, "name": "z", "nothing": ""},
        ],
        [],
    )


def test_declared_columns_are_found_by_name_and_others_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("other,b,a\nx,y,1\n")
    (tmp_path / "b.csv").write_text("a,b\n2,z\n")
    source = from_csv(tmp_path, {"a": int, "b": str})
    assert read_all(source)[0] == [{"a": 1, "b": "y"}, {"a": 2, "b": "z"}]


def test_files_may_have_no_header_another_delimiter_windows_breaks_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf1;x\r\n2;y\r\n\r\n3;z")
    rows, bad = read_all(from_csv(tmp_path, {"a": int, "b": str}, delimiter=";", header=False))
    assert [(row["a"], row["b"]) for row in rows] == [(1, "x"), (2, "y"), (3, "z")]
    assert bad == []


def test_compressed_files_are_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(b"a\n1\n2\n")
    assert read_all(from_csv(tmp_path))[0] == [{"a": 1}, {"a": 2}]


def test_times_dates_and_decimals(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "at,plain,day,amount\n"
        "2026-01-02T03:04:05.678Z,2026-01-02 03:04:05,2026-01-02,1.50\n"
        "2026-01-02T03:04:05.678901+01:00,2026-01-02 03:04:05.5,2026-01-02,2\n"
        ",,,\n"
    )
    schema = {"at": datetime, "plain": "timestamp[ms, UTC]", "day": date, "amount": pa.decimal128(10, 2)}
    rows, bad = read_all(from_csv(tmp_path, schema, time="at"))
    assert bad == []
    assert rows[0] == {
        "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
        "plain": datetime(2026, 1, 2, 3, 4, 5, 0, UTC),
        "day": date(2026, 1, 2),
        "amount": Decimal("1.50"),
    }
    assert rows[1]["at"] == datetime(2026, 1, 2, 2, 4, 5, 678000, UTC)
    assert set(rows[2].values()) == {None}


def test_lines_that_do_not_fit_are_bad_rows_with_their_place(tmp_path: Path) -> None:
    lines = [
        "a,b",
        "1,x",
        "two,y",
        "3",
        "",
        "4,z,extra",
        '5,"open',
        '6,"fine"',
        '7,"it\'s 5 ""feet"""',
        '8,5" pipe',
        "9,end",
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    rows, bad = read_all(from_csv(tmp_path, {"a": int, "b": str}))
    assert [row["a"] for row in rows] == [1, 6, 7, 8, 9]
    assert [row["b"] for row in rows] == ["x", "fine", 'it\'s 5 "feet"', '5" pipe', "end"]
    assert sorted((each.row, each.error.split(": ")[0]) for each in bad) == [
        ("3", "csv, a.csv, line 4"),
        ("4,z,extra", "csv, a.csv, line 6"),
        ('5,"open', "csv, a.csv, line 7"),
        ("two,y", "csv, a.csv, line 3"),
    ]
    assert any("the column 'a' holds 'two', which is no int64" in each.error for each in bad)


def test_bytes_that_are_no_text_are_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a\nx\n\xff\ny\n")
    rows, bad = read_all(from_csv(tmp_path, {"a": str}))
    assert [row["a"] for row in rows] == ["x", "y"]
    assert [each.row for each in bad] == ["\\xff"]


def test_a_column_that_must_have_a_value_makes_rows_without_one_bad(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,x\n,y\n")
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])
    rows, bad = read_all(from_csv(tmp_path, schema))
    assert rows == [{"a": 1, "b": "x"}]
    assert "the column 'a' has no value" in bad[0].error


def test_a_huge_line_is_a_bad_row_and_the_lines_around_it_come(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("wb") as file:
        file.write(b"a\n1\n")
        file.write(b"9" * (LINE_LIMIT_BYTES + 3 * BLOCK_BYTES))
        file.write(b"\n2\nx\n3")
    rows, bad = read_all(from_csv(tmp_path, {"a": int}))
    assert [row["a"] for row in rows] == [1, 2, 3]
    assert [each.error.split(": ")[0] for each in bad] == ["csv, a.csv, line 3", "csv, a.csv, line 5"]
    assert f"longer than {LINE_LIMIT_BYTES} bytes" in bad[0].error


@settings(max_examples=30, deadline=None)
@given(
    lines=st.lists(
        st.one_of(st.integers(0, 10**6).map(str), st.sampled_from(["bad", '"', "", "1,2", "\r", '"3"'])), max_size=60
    )
)
def test_every_line_comes_out_once_good_or_bad(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "a.csv").write_text("a\n" + "".join(line + "\n" for line in lines), newline="")
    rows, bad = read_all(from_csv(folder, {"a": int}), rows_max=7)
    good = [int(line.strip('"')) for line in lines if line.strip('"').isdigit()]
    assert [row["a"] for row in rows] == good
    assert len(bad) == sum(1 for line in lines if line in ("bad", '"', "1,2"))


def test_files_larger_than_a_block_keep_their_order_and_line_numbers(tmp_path: Path) -> None:
    count = 60_000
    lines = [f"{number},{'x' * (number % 7)}" for number in range(count)]
    lines[50_000] = "wrong,here"
    (tmp_path / "a.csv").write_text("n,text\n" + "\n".join(lines))
    assert (tmp_path / "a.csv").stat().st_size > 4 * BLOCK_BYTES
    rows, bad = read_all(from_csv(tmp_path, {"n": int, "text": str}), rows_max=4096)
    assert [row["n"] for row in rows] == [number for number in range(count) if number != 50_000]
    assert [each.error.split(": ")[0] for each in bad] == ["csv, a.csv, line 50002"]


def test_a_file_full_of_bad_lines_is_read_in_short_steps(tmp_path: Path) -> None:
    # These lines look right at first sight, so that each has to be parsed on its own.
    (tmp_path / "a.csv").write_text("a,b\n" + '"x",1\n' * 1000)
    (split,) = from_csv(tmp_path, {"a": int, "b": int}).splits(1)
    longest, bad = 0.0, 0
    while not split.ended:
        begin = time.perf_counter()
        piece = split.read(4096)
        longest = max(longest, time.perf_counter() - begin)
        bad += 0 if piece is None else len(piece.bad)
    assert bad == 1000
    assert longest < 0.5


@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 9])
def test_splits_cover_every_file_exactly_once(tmp_path: Path, wanted: int) -> None:
    for number in range(4):
        # The order of the columns differs, and splits must not confuse each other's.
        header, row = ("n,m", f"{number},-1") if number % 2 else ("m,n", f"-1,{number}")
        (tmp_path / f"{number}.csv").write_text(f"{header}\n{row}\n")
    splits = from_csv(tmp_path, {"n": int, "m": int}).splits(wanted)
    assert len(splits) == min(wanted, 4)
    assert sorted(row["n"] for split in splits for row in read_split(split)[0]) == [0, 1, 2, 3]


def test_files_without_rows_give_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n")
    (tmp_path / "b.csv").write_text("")
    assert read_all(from_csv(tmp_path, {"a": int})) == ([], [])


def test_what_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="there is no file or folder"):
        from_csv(tmp_path / "missing.csv")
    with pytest.raises(FlowError, match="there are no files"):
        from_csv(tmp_path)
    (tmp_path / "a.csv").write_text("price,a\n1,2\n")
    with pytest.raises(FlowError, match=r"no column 'prise'; did you mean 'price'"):
        from_csv(tmp_path, {"prise": int})
    with pytest.raises(FlowError, match="a type that such a file cannot hold"):
        from_csv(tmp_path, {"a": list[int]})
    with pytest.raises(FlowError, match="cannot separate values"):
        from_csv(tmp_path, delimiter=";;")
    (tmp_path / "b.csv").write_text("a,a,price\n1,2,3\n")
    with pytest.raises(FlowError, match="'a' more than once"):
        from_csv(tmp_path, {"a": int})


def test_no_rows_to_work_columns_out_from_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(FlowError, match="give schema="):
        from_csv(tmp_path)


def test_splits_that_are_read_in_turn_keep_their_own_order_of_columns(tmp_path: Path) -> None:
    count = BLOCK_BYTES // 4  # so that each file has several blocks
    (tmp_path / "a.csv").write_text("n,m\n" + "1,-1\n" * count)
    (tmp_path / "b.csv").write_text("m,n\n" + "-1,1\n" * count)
    splits = from_csv(tmp_path, {"n": int, "m": int}).splits(2)
    found = {"n": 0, "m": 0}
    while not all(split.ended for split in splits):
        for split in splits:
            piece = split.read(1 << 20)
            if piece is not None:
                for name in found:
                    found[name] += sum(piece.rows.column(name).to_pylist())
    for split in splits:
        split.close()
    assert found == {"n": 2 * count, "m": -2 * count}
