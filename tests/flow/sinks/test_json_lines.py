"""Results as JSON Lines."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.sinks import to_json_lines
from dirigo.flow.sources import from_json_lines

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("at", pa.timestamp("ms", "Europe/Paris")),
        ("fine", pa.timestamp("ns")),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("text", pa.string()),
        ("ok", pa.bool_()),
        ("real", pa.float64()),
        ("places", pa.list_(pa.struct([("since", pa.timestamp("us"))]))),
    ]
)
ROW: dict[str, Any] = {
    "n": 2**60,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
    "fine": datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - a column without a zone
    "amount": Decimal("1.50"),
    "day": date(2026, 1, 2),
    "raw": b"abc",
    "text": 'a "quoted"\nbreak',
    "ok": True,
    "real": 0.1,
    "places": [{"since": datetime(2026, 1, 2, 3, 4, 5)}],  # noqa: DTZ001 - a column without a zone
}


def test_a_line_says_every_type_as_promised(tmp_path: Path) -> None:
    writer = to_json_lines(tmp_path).open(SCHEMA, 0)
    writer.write(pa.RecordBatch.from_pylist([ROW, dict.fromkeys(ROW)], schema=SCHEMA))
    writer.close()
    first, second = (tmp_path / "part-0-00000.jsonl").read_text().splitlines()
    assert json.loads(first) == {
        "n": 2**60,
        "at": "2026-01-02T03:04:05.678Z",
        "fine": "2026-01-02T03:04:05.000006000Z",
        "amount": "1.50",
        "day": "2026-01-02",
        "raw": "YWJj",
        "text": 'a "quoted"\nbreak',
        "ok": True,
        "real": 0.1,
        "places": [{"since": "2026-01-02T03:04:05Z"}],
    }
    assert json.loads(second) == dict.fromkeys(ROW)


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pylist([ROW, dict.fromkeys(ROW)] * 100, schema=SCHEMA)
    writer = to_json_lines(tmp_path).open(SCHEMA, 0)
    writer.write(batch)
    writer.close()
    (split,) = from_json_lines(tmp_path, SCHEMA).splits(1)
    piece = split.read(1000)
    assert piece is not None
    assert list(piece.bad) == []
    assert piece.rows.equals(batch)
    split.close()


def test_a_dictionary_encoded_column_is_written_as_its_values(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    writer = to_json_lines(tmp_path).open(batch.schema, 0)
    writer.write(batch)
    writer.close()
    assert (tmp_path / "part-0-00000.jsonl").read_text() == '{"a":"x"}\n{"a":"y"}\n{"a":"x"}\n'


def test_all_lines_so_far_are_complete_after_a_flush(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": ["x" * 100] * 1000})
    writer = to_json_lines(tmp_path).open(batch.schema, 7)
    path = tmp_path / "part-7-00000.jsonl"
    written = 0
    for _ in range(10):
        writer.write(batch)
        written += 1000
        text = path.read_bytes() if path.exists() else b""
        assert not text or text.endswith(b"}\n")
        writer.flush()
        assert path.read_bytes().count(b"}\n") == written
    writer.close()
    writer.close()


def test_every_partition_has_a_file_even_if_it_is_empty(tmp_path: Path) -> None:
    sink = to_json_lines(tmp_path / "new")
    sink.prepare(SCHEMA)
    for partition in range(2):
        sink.open(SCHEMA, partition).close()
    assert [(path.name, path.stat().st_size) for path in sorted((tmp_path / "new").iterdir())] == [
        ("part-0-00000.jsonl", 0),
        ("part-1-00000.jsonl", 0),
    ]


def test_earlier_results_are_kept_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    to_json_lines(tmp_path).open(SCHEMA, 4).close()
    with pytest.raises(FlowError, match='mode="overwrite"'):
        to_json_lines(tmp_path).prepare(SCHEMA)
    assert (tmp_path / "part-4-00000.jsonl").exists()
    sink = to_json_lines(tmp_path, mode="overwrite")
    sink.prepare(SCHEMA)
    assert (tmp_path / "part-4-00000.jsonl").exists()
    sink.open(SCHEMA, 4).close()
    (new,) = tmp_path.iterdir()
    assert new.name.startswith("part-4-00001-")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FlowError, match=r"thesis\.txt' is no earlier result"):
        to_json_lines(tmp_path, mode="overwrite").prepare(SCHEMA)
