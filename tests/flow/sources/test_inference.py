"""Types that are worked out: the same data is of the same types, whatever format it is written in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.sources.files.inference import SAMPLE_LINES, type_of_texts
from dirigo.testing import run

UTC = "UTC"
CASES: dict[str, tuple[list[Any], pa.DataType]] = {
    "integers": ([1, -2, 3], pa.int64()),
    "too large": ([1, 2**63], pa.float64()),
    "floats": ([1.5, 2, 1e30], pa.float64()),
    "booleans": ([True, False], pa.bool_()),
    "strings": (["x", "2024-01-01x", "10:30:00"], pa.string()),
    "dates": (["2024-01-31", "1969-12-31"], pa.date32()),
    "no dates": (["2024-01-31", "2024-02-30"], pa.string()),
    "seconds": (["2024-01-31T10:00:00", "2024-01-31 10:00:01"], pa.timestamp("ms", UTC)),
    "minutes": (["2024-01-31T10:00"], pa.timestamp("ms", UTC)),
    "milliseconds": (["2024-01-31T10:00:00.125", "2024-01-31T10:00:00"], pa.timestamp("ms", UTC)),
    "microseconds": (["2024-01-31T10:00:00.1250", "2024-01-31T10:00:00"], pa.timestamp("us", UTC)),
    "nanoseconds": (["2024-01-31T10:00:00.123456789"], pa.timestamp("ns", UTC)),
    "zones": (["2024-01-31T10:00:00Z", "2024-01-31T10:00:00+02:00", "2024-01-31T10:00:00-0130"], pa.timestamp("ms", UTC)),
    "some zones": (["2024-01-31T10:00:00Z", "2024-01-31T10:00:00", "2024-01-31"], pa.timestamp("ms", UTC)),
    "dates and times": (["2024-01-31", "2024-01-31T10:00:00"], pa.timestamp("ms", UTC)),
    "no times": (["2024-01-31T25:00:00"], pa.string()),
    "nothing": ([None, None], pa.string()),
}


def written(folder: Path, values: list[Any]) -> tuple[Path, Path]:
    rows = [{"n": number, "value": value} for number, value in enumerate(values)]
    lines = ["n,value"] + [f"{row['n']},{_cell(row['value'])}" for row in rows]
    as_csv, as_json = folder / "rows.csv", folder / "rows.jsonl"
    as_csv.write_text("\n".join(lines) + "\n")
    as_json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return as_csv, as_json


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "with nulls"])
@pytest.mark.parametrize("case", CASES)
def test_csv_and_json_of_the_same_data_have_the_same_types_and_values(tmp_path: Path, case: str, gaps: bool) -> None:
    values, kind = CASES[case]
    as_csv, as_json = written(tmp_path, [*values, None] if gaps else values)
    flow = dg.Dataflow("alike")
    streams = [flow.source(dg.from_csv(as_csv)), flow.source(dg.from_json_lines(as_json))]
    for stream in streams:
        assert stream.schema == pa.schema([("n", pa.int64()), ("value", kind)])
        stream.sink(dg.to_memory())
    simulation = run(flow)
    first, second = (simulation.table(sink) for sink in simulation.sinks)
    assert first.num_rows == len(values) + gaps
    if kind != pa.string():  # of text, a CSV file cannot say that it is not there
        assert first.equals(second)


def test_a_union_of_csv_and_json_of_the_same_data(tmp_path: Path) -> None:
    rows = [{"at": f"2024-01-31T10:00:{second:02}Z", "price": second / 2, "item": "x"} for second in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(dict(reversed(row.items()))) + "\n" for row in rows))
    lines = [",".join(map(str, row.values())) for row in rows]
    (tmp_path / "rows.csv").write_text("\n".join(["at,price,item", *lines]) + "\n")
    flow = dg.Dataflow("united")
    one = flow.source(dg.from_csv(tmp_path / "rows.csv", time="at"))
    other = flow.source(dg.from_json_lines(tmp_path / "rows.jsonl", time="at"))
    one.union(other).window(dg.Tumbling("10s")).aggregate(n=dg.count(), total=dg.sum("price")).sink(dg.to_memory())
    assert [(row["n"], row["total"]) for row in run(flow).rows()] == [(20, 45.0), (20, 145.0)]


def test_as_many_rows_count_whatever_they_take_in_bytes(tmp_path: Path) -> None:
    """JSON repeats the names of its columns, so blocks of bytes hold fewer rows of it."""
    values: list[Any] = [1] * (SAMPLE_LINES + 50)
    values[SAMPLE_LINES - 10] = 1.5
    rows = [{"value": value, "a_name_that_takes_more_place_than_its_values" * 5: "x"} for value in values]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rows.csv").write_text("value,text\n" + "".join(f"{value},x\n" for value in values))
    sources = (dg.from_csv(tmp_path / "rows.csv"), dg.from_json_lines(tmp_path / "rows.jsonl"))
    assert [source.schema.field("value").type for source in sources] == [pa.float64()] * 2


def test_digits_that_a_column_has_no_room_for_are_dropped(tmp_path: Path) -> None:
    as_csv, as_json = written(tmp_path, ["2024-01-31T10:00:00.123456789Z", "2024-01-31T10:00:00"])
    schema = {"n": int, "value": "timestamp[ms, UTC]"}
    flow = dg.Dataflow("cut")
    for source in (dg.from_csv(as_csv, schema), dg.from_json_lines(as_json, schema)):
        flow.source(source).sink(dg.to_memory())
    simulation = run(flow)
    for sink in simulation.sinks:
        assert [row["value"].microsecond for row in simulation.rows(sink)] == [123_000, 0]


def test_a_text_that_only_begins_like_a_time_is_text() -> None:
    assert type_of_texts(pa.array(["2024-01-31T10:00:00 or so"])) == pa.string()
    assert type_of_texts(pa.array(["2024"])) == pa.string()
