"""Results kept in memory."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.errors import FlowError
from dirigo.flow.sinks import to_memory
from dirigo.testing import run
from flow.flows import run_inline

BATCH = pa.record_batch({"a": [1, 2], "b": ["x", None]})


def test_rows_of_all_partitions_are_kept() -> None:
    results = to_memory()
    results.prepare(BATCH.schema)
    writers = [results.open(BATCH.schema, partition) for partition in range(2)]
    writers[1].write(BATCH.slice(1))
    writers[0].write(BATCH)
    writers[1].write(BATCH.slice(0, 1))
    for writer in writers:
        writer.flush()
        writer.close()
    assert [row["a"] for row in results.rows] == [1, 2, 2, 1]
    assert results.rows[0] == {"a": 1, "b": "x"}
    assert results.table.num_rows == 4


def test_an_empty_result_still_has_its_columns() -> None:
    results = to_memory()
    results.prepare(BATCH.schema)
    results.open(BATCH.schema, 0).close()
    assert results.rows == []
    assert results.table.schema == BATCH.schema


def test_a_new_run_forgets_the_rows_of_the_last() -> None:
    results = to_memory()
    for _ in range(2):
        results.prepare(BATCH.schema)
        writer = results.open(BATCH.schema, 0)
        writer.write(BATCH)
        writer.close()
    assert len(results.rows) == 2


def test_asking_before_the_job_ran_is_an_error() -> None:
    with pytest.raises(FlowError, match="run the job first"):
        to_memory().rows  # noqa: B018 - reading it is the test


@pytest.mark.parametrize("values", [pa.array([b"\xff"]).view(pa.string()), pa.array([2**60], pa.timestamp("s"))])
def test_a_value_without_a_form_in_python_is_told_and_stays_in_the_table(values: pa.Array) -> None:
    batch = pa.record_batch({"x": values})
    flow = dg.Dataflow("odd")
    out = dg.to_memory(name="out")
    flow.source(dg.from_iterable(batch)).sink(out)
    run_inline(flow)
    result = run(flow)
    said = r"out: a value has no form in Python .*; take the table instead of the rows"
    for table in (out.table, result.table("out")):
        assert table.column("x").chunk(0).equals(values)
    with pytest.raises(FlowError, match=said):
        _ = out.rows
    with pytest.raises(FlowError, match=said):
        result.rows("out")
