"""Two jobs that run at the same time never write to one place, and the second one harms nothing of the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import dirigo as dg
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.runtime.client.shipment import manifest_of
from dirigo.runtime.controller.claims import CLAIM_S, Claims
from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.errors import ControlError
from runtime.clusters import until
from runtime.pretenders import PretendedCluster

NOBODY: tuple[JobRecord, ...] = ()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PretendedCluster]:
    with ExitStack() as stack:
        yield stack.enter_context(PretendedCluster(tmp_path / "logs", 1))


def writing(name: str, folder: Path | str, **options: object) -> dg.Dataflow:
    flow = dg.Dataflow(name)
    flow.source(dg.from_iterable([{"n": 1}])).sink(dg.to_parquet(folder, **options), name=f"files-of-{name}")  # type: ignore[arg-type]
    return flow


def test_a_running_job_has_its_folder_for_itself(
    cluster: PretendedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    cluster.client.submit(writing("first", out))
    result = out / "part-0-00000.parquet"
    result.write_bytes(b"what the first job has written")
    (tmp_path / "link").symlink_to(out)
    monkeypatch.chdir(tmp_path)
    for name in (out, "out", "link", "logs/../out", out.as_uri()):
        with pytest.raises(ControlError) as found:
            cluster.client.submit(writing("second", name, mode="overwrite"))
        assert str(found.value) == (
            f"sink 'files-of-second' of job 'second' cannot write to '{out}': job 'first', which is running, writes there "
            "in its sink 'files-of-first'; choose another place, or cancel that job and wait for its end."
        )
    assert result.read_bytes() == b"what the first job has written"
    assert [job.name for job in cluster.client.jobs()] == ["first"]
    cluster.client.submit(writing("elsewhere", tmp_path / "out2"))


def test_so_are_folders_in_its_folder_and_around_it(cluster: PretendedCluster, tmp_path: Path) -> None:
    cluster.client.submit(writing("first", tmp_path / "out" / "mine"))
    for folder in (tmp_path / "out" / "mine" / "below", tmp_path / "out"):
        with pytest.raises(ControlError, match=rf"job 'first', which is running, writes to '{tmp_path}/out/mine' in"):
            cluster.client.submit(writing("second", folder))
    cluster.client.submit(writing("second", tmp_path / "out" / "mine too"))


def test_a_folder_is_free_once_its_job_is_over(cluster: PretendedCluster, tmp_path: Path) -> None:
    first = cluster.client.submit(writing("first", tmp_path / "out"))
    first.cancel()
    until(lambda: first.status().state == "cancelled", "it is over")
    cluster.client.submit(writing("second", tmp_path / "out", mode="overwrite"))


def test_a_job_that_is_not_submitted_after_all_keeps_no_place(cluster: PretendedCluster, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-0-00000.parquet").touch()
    with pytest.raises(dg.FlowError, match="already has files in it"):
        cluster.client.submit(writing("first", tmp_path / "out"))
    cluster.client.submit(writing("first", tmp_path / "out", mode="overwrite"))
    with pytest.raises(ControlError, match="a job 'first' is running already"):
        cluster.client.submit(writing("first", tmp_path / "other"))
    cluster.client.submit(writing("other", tmp_path / "other"))


def test_a_sink_of_ones_own_names_its_place(cluster: PretendedCluster) -> None:
    class Table(dg.Sink):
        @property
        def place(self) -> str:
            return "db:results"

        def open(self, schema: object, partition: int) -> dg.Writer:
            raise AssertionError("it never runs")

    def flow(name: str) -> dg.Dataflow:
        made = dg.Dataflow(name)
        made.source(dg.from_iterable([{"n": 1}])).sink(Table("table"))
        return made

    assert manifest_of(BoundJob(flow("first"))).places == {"table": "db:results"}
    cluster.client.submit(flow("first"))
    with pytest.raises(ControlError, match="cannot write to 'db:results': job 'first', which is running"):
        cluster.client.submit(flow("second"))


def test_of_two_that_are_submitted_at_once_one_comes_first() -> None:
    now = [0.0]
    claims = Claims(lambda: now[0])
    claims.take("a", "one", {"s": "/out"}, NOBODY)
    claims.take("a", "one", {"s": "/out"}, NOBODY)  # asked again
    with pytest.raises(ControlError, match="job 'one', which is running"):
        claims.take("b", "other", {"t": "/out"}, NOBODY)
    claims.check("one", {"s": "/out"}, NOBODY, "a")
    with pytest.raises(ControlError):
        claims.check("other", {"t": "/out"}, NOBODY, "b")
    claims.take("a", "one", {}, NOBODY)
    claims.take("b", "other", {"t": "/out"}, NOBODY)
    now[0] += CLAIM_S
    claims.take("c", "third", {"t": "/out"}, NOBODY)  # whoever had it never came
