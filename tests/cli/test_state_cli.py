"""What an operator keeps, on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import home_of_clusters, refused, run, until, written
from cli.test_snapshots_cli import status_of

COUNTED = """
import time
import dirigo as dg

def ticks(first, count):
    time.sleep(0.005)
    return [{"n": n, "rest": n % 30, "ts": n} for n in range(first, first + count)]

class Counted(dg.Function):
    rows = dg.MapState(int, int)
    seen = dg.ValueState(int, default=0)
    ordered = True

    def on_message(self, context, row):
        self.seen.set(self.seen.get() + 1)
        self.rows[row.n % 2] = row.n

flow = dg.Dataflow("counted")
rows = flow.source(dg.from_generator(ticks, {"n": int, "rest": int, "ts": int}, None, block=5, time="ts"), splits=1)
rows.key_by("rest").process(Counted, {"n": int}, name="counts").sink(dg.to_nothing())
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with home_of_clusters(tmp_path / "home") as place:
        yield place


def test_the_state_of_a_job_is_shown(tmp_path: Path) -> None:
    run("cluster", "start", "--workers", "1", "--snapshots-every", "200ms")
    run("submit", written(tmp_path, COUNTED))
    until(lambda: status_of("counted").metrics.rows_in > 100, "all keys are there")
    figures = tmp_path / "state.json"
    out, _ = run("state", "counted", "counts", "--fresh", "--limit", "7", "--json", figures)
    lines = out.splitlines()
    assert lines[0].split() == ["rest", "rows", "seen"]
    assert re.search(
        r"^30 rows in 'counts' of job counted~1, as of snapshot \d+, of which the first 7 are shown$", out, re.MULTILINE
    )
    assert sum(bool(re.match(r"^\d+ +\{", line)) for line in lines) == 7
    report = json.loads(figures.read_text())
    assert [report["job"], report["operator"]] == ["counted~1", "counts"]
    rows = {row["rest"]: row for row in report["rows"]}
    assert sorted(rows) == list(range(30))
    assert rows[4]["rows"] == {"0": 30 * (rows[4]["seen"] - 1) + 4}
    assert "those with a state are counts" in refused("state", "counted", "count")
    assert "there is no job 'none'" in refused("state", "none", "counts")
    run("cluster", "stop")
