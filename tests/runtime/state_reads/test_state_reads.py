"""States are read while their job runs: each table of one snapshot, all of them consistent, and told which it is."""

from __future__ import annotations

import operator
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.errors import DirigoError
from dirigo.runtime.client.job import Job
from dirigo.runtime.snapshots.store import SnapshotStore
from dirigo.runtime.stored_states import SnapshotIsGone, StoredStates, read_while_it_lasts
from runtime.clusters import SCHEMA, LocalCluster, numbers, until

KEYS = 13


class Counted(dg.Function):
    """Counts the rows of each key, and hands them on."""

    rows = dg.ValueState(int, default=0, combine=operator.add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.add(1)
        context.emit(row.asdict())


class Added(dg.Function):
    """Adds up the numbers of each key: further down the same rows."""

    total = dg.ValueState(int, default=0, combine=operator.add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.total.add(row.n)


def trickle(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.004)
    return numbers(first, count)


def flow_of(rows: int | None = None) -> dg.Dataflow:
    """Every row changes the state of two operators. One split, so that what was read is always a prefix."""
    flow = dg.Dataflow("read")
    source = flow.source(dg.from_generator(trickle, SCHEMA, rows, block=20, time="ts", name="numbers"), splits=1)
    counted = source.key_by("key").process(Counted, SCHEMA, name="counts")
    counted.key_by("key").process(Added, SCHEMA, name="sums").sink(dg.to_nothing())
    return flow


def snapshot_of(table: pa.Table) -> int:
    return int(table.schema.metadata[b"dirigo.snapshot"])


def rows_in(tables: dict[str, pa.Table]) -> int:
    """How many rows the states know of, after a look whether both know of the same ones: of a prefix of the input."""
    counts = {row["key"]: row["rows"] for row in tables["counts"].to_pylist()}
    sums = {row["key"]: row["total"] for row in tables["sums"].to_pylist() if row["total"]}
    rows: int = sum(counts.values())
    assert counts == Counter(n % KEYS for n in range(rows))
    expected: Counter[int] = Counter()
    for n in range(rows):
        expected[n % KEYS] += n
    assert sums == +expected
    assert snapshot_of(tables["counts"]) == snapshot_of(tables["sums"])
    return rows


def begun(cluster: LocalCluster, flow: dg.Dataflow | None = None) -> Job:
    job = cluster.submit(flow or flow_of())
    until(lambda: (last := job.status().snapshot) is not None and last.total_bytes > 0, "a snapshot is there")
    return job


def test_all_operators_agree_while_the_job_runs_and_after_a_loss(tmp_path: Path) -> None:
    seen: list[int] = []
    problems: list[str] = []

    def read(job: Job, *, fresh: bool) -> None:
        before = (0, 0)
        while not is_enough.is_set():
            try:
                tables = job.states("counts", "sums", fresh=fresh)
                now = (snapshot_of(tables["counts"]), rows_in(tables))
                assert now >= before
                before = now
                seen.append(now[1])
            except Exception as error:
                problems.append(repr(error))
                return

    is_enough = threading.Event()
    with LocalCluster(tmp_path / "logs", workers=2, snapshots=tmp_path / "snapshots", every_s=0.1) as cluster:
        job = begun(cluster)
        readers = [threading.Thread(target=read, args=(job,), kwargs={"fresh": fresh}) for fresh in (False, False, True)]
        for reader in readers:
            reader.start()
        until(lambda: problems or len(set(seen)) > 4, "states are read")
        os.kill(cluster.worker(1).pid, signal.SIGKILL)
        until(lambda: job.status().recoveries == 1 and job.status().state == "running", "the job runs again")
        seen_before = set(seen)
        until(lambda: problems or len({*seen} - seen_before) > 4, "states are read again")
        is_enough.set()
        for reader in readers:
            reader.join(30)
        job.cancel()
    assert problems == []
    assert len(seen) >= 10


def test_a_fresh_read_sees_what_was_there_before(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "logs", workers=1, snapshots=tmp_path / "snapshots", every_s=30) as cluster:
        job = cluster.submit(flow_of())
        with pytest.raises(DirigoError, match="no snapshot of job 'read' has been committed yet; try again soon"):
            job.state("counts")
        first = rows_in(job.states(fresh=True))
        last = job.state("counts")
        assert sum(last["rows"].to_pylist()) == first  # as of the same snapshot, and none was taken since
        for _ in range(3):
            before = rows_in(job.states())
            until(lambda before=before: job.metrics().rows_in > before, "more has been read")  # type: ignore[misc]
            known = job.metrics().rows_in
            assert rows_in(job.states(fresh=True)) >= known
        job.cancel()


def test_fresh_reads_at_once_share_snapshots(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "logs", workers=1, snapshots=tmp_path / "snapshots", every_s=30) as cluster:
        job = begun_without_snapshots(cluster)
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(snapshot_of(job.state("counts", fresh=True)))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        last = job.status().snapshot
        assert last is not None
        job.cancel()
    assert len(found) == 8
    assert last.number <= 4


def begun_without_snapshots(cluster: LocalCluster) -> Job:
    job = cluster.submit(flow_of())
    until(lambda: job.metrics().rows_in > 100, "the job runs")
    return job


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "logs", workers=1) as cluster:
        job = begun_without_snapshots(cluster)
        with pytest.raises(DirigoError, match=r"cannot be read: this cluster takes no snapshots; start it with a folder"):
            job.state("counts")
        job.cancel()
    root = tmp_path / "snapshots"
    with LocalCluster(tmp_path / "logs", workers=1, snapshots=root, every_s=0.1) as cluster:
        job = begun(cluster)
        with pytest.raises(DirigoError, match=r"'total' in job 'read~\d+' cannot be read, because it is no operator of it"):
            job.state("total")
        with pytest.raises(DirigoError, match=r"'numbers' .* it keeps no state; those with a state are counts, sums\."):
            job.state("numbers")
        once = dg.Dataflow("once")
        rows = dg.from_iterable({(n * 60_000,) for n in range(10)}, {"n": int}, time="n", name="a_set")
        once.source(dg.paced(rows, begins_ms=0)).deduplicate("n").sink(dg.to_nothing())
        of_a_set = cluster.submit(once)
        sentence = (
            r"cannot be read: no snapshots are taken, because the source 'a_set' cannot go back .*; use a source that can"
        )
        with pytest.raises(DirigoError, match=sentence):
            of_a_set.state("deduplicate")
        of_a_set.cancel()
        aside = root.rename(tmp_path / "aside")
        root.write_text("a file is here")
        with pytest.raises(
            DirigoError, match=r"no fresh snapshot of job 'read' was there in time: snapshot \d+ could not be"
        ):
            job.state("counts", fresh=True, timeout_s=1)
        root.unlink()
        with pytest.raises(DirigoError, match="is not there on this machine"):
            job.state("counts")
        aside.rename(root)
        assert rows_in(job.states()) > 0
        job.cancel()
        until(lambda: job.status().state == "cancelled", "the job is over")
        with pytest.raises(DirigoError, match="job 'read' is over: it is cancelled"):
            job.state("counts")


def test_a_snapshot_that_is_read_stays(tmp_path: Path) -> None:
    root = tmp_path / "snapshots"
    with LocalCluster(tmp_path / "logs", workers=1, snapshots=root, every_s=0.05) as cluster:
        job = begun(cluster)
        place = cluster.client.find_snapshot("read")
        states = StoredStates.in_snapshots(place.root, place.job, place.number)
        until(lambda: (last := job.status().snapshot) is not None and last.number > place.number + 6, "there are later ones")
        assert rows_in({name: states.table(name) for name in states.operators}) > 0
        numbers_kept = [each.number for each in SnapshotStore(str(root), place.job).manifests()]
        assert place.number in numbers_kept
        assert len(numbers_kept) < 8
        job.cancel()


def test_the_next_one_is_read_if_a_snapshot_is_removed_meanwhile(tmp_path: Path) -> None:
    root = tmp_path / "snapshots"
    with LocalCluster(tmp_path / "logs", workers=1, snapshots=root, every_s=0.05) as cluster:
        job = begun(cluster)
        found: list[StoredStates] = []

        def find() -> StoredStates:
            found.append(StoredStates.in_snapshots(str(root), "read"))
            if len(found) < 3:  # nobody holds it: it goes before it is read
                number = found[-1].number
                until(lambda: number not in kept(root, found[-1].job), "it is removed")
            return found[-1]

        def read(states: StoredStates) -> dict[str, pa.Table]:
            # Small states are in the manifest, which has been read: as if they were not.
            if len(found) < 3:
                with pytest.raises(SnapshotIsGone):
                    StoredStates.in_snapshots(str(root), states.job, states.number)
                raise SnapshotIsGone("gone")
            return {name: states.table(name) for name in states.operators}

        assert rows_in(read_while_it_lasts(find, read)) > 0
        assert len(found) == 3
        job.cancel()

    def in_vain(states: Any) -> None:
        raise SnapshotIsGone("It is gone.")

    with pytest.raises(
        SnapshotIsGone, match=r"5 snapshots in a row were removed while they were read .* \(snapshots_every\)"
    ):
        read_while_it_lasts(lambda: found[0], in_vain)


def kept(root: Path, job: str) -> list[int]:
    return [each.number for each in SnapshotStore(str(root), job).manifests()]
