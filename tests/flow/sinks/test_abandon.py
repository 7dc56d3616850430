"""What becomes of the writers of a job that does not come to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.testing import Abort, Pause, Simulation


class Telling(dg.Sink):
    """Notes in a folder, one file per call, what its writers are told."""

    def __init__(self, folder: Path) -> None:
        super().__init__("telling")
        self.folder = folder

    def open(self, schema: pa.Schema, partition: int) -> TellingWriter:
        return TellingWriter(self.folder / str(partition))


class TellingWriter(dg.Writer):
    def __init__(self, place: Path) -> None:
        self._place = place
        self._place.mkdir(exist_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        (self._place / "write").touch()

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        (self._place / "close").touch()

    def abandon(self) -> None:
        (self._place / "abandon").touch()


def told(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*/*")}


def test_a_job_that_fails_abandons_its_writers_and_one_that_ends_closes_them(tmp_path: Path) -> None:
    for name, script in (("fails", [{"n": 1}, Pause("1s"), Abort()]), ("ends", [{"n": 1}])):
        (tmp_path / name).mkdir()
        flow = dg.Dataflow(name)
        flow.source(dg.from_iterable([], {"n": int}, name="rows")).sink(Telling(tmp_path / name))
        simulation = Simulation(flow, script, writes=True)
        if name == "fails":
            with pytest.raises(dg.DirigoError, match="aborted"):
                simulation.finish()
        else:
            simulation.finish()
    assert told(tmp_path / "fails") == {"write", "abandon"}
    assert told(tmp_path / "ends") == {"write", "close"}


@pytest.mark.parametrize("sink", [dg.to_parquet, dg.to_json_lines])
def test_an_abandoned_file_shows_no_half_of_a_row(tmp_path: Path, sink: Any) -> None:
    rows = pa.record_batch({"n": list(range(70_000))})  # more than waits in memory
    made = sink(tmp_path / "out")
    made.prepare(rows.schema)
    writer = made.open(rows.schema, 0)
    writer.write(rows)
    writer.abandon()
    writer.abandon()
    writer.close()
    left = list((tmp_path / "out").iterdir())
    assert not [file for file in left if file.name.startswith(".")]
    assert all(file.read_text().endswith("\n") for file in left if file.suffix == ".jsonl")
    assert not list((tmp_path / "out").glob("*.parquet"))
