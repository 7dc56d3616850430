"""The earliest deadline first: over all jobs, with patience for those that were promised nothing."""

from dirigo.kernel import Data, Lane
from dirigo.scheduling import Edf, Fifo
from dirigo.scheduling.deadlines import PATIENCE_S, due
from kernel.scenario import Stage, T, program, row
from scheduling.pool import Pool


def names(pool: Pool) -> list[str]:
    return [each.message.to.split("/")[0] for each in pool.ran]


def test_what_is_due_first_runs_first_whatever_job_it_is_of() -> None:
    pool = Pool(Edf, workers=2)
    lax = pool.job("lax", latency_s=1.0)
    tight = pool.job("tight", latency_s=0.1)
    lax.burst(0.0, 5)
    tight.burst(0.005, 3)
    pool.run()
    assert names(pool) == ["lax", "tight", "tight", "tight", "lax", "lax", "lax", "lax"]


def test_the_order_is_that_of_deadlines_not_of_objectives() -> None:
    pool = Pool(Edf, workers=2)
    lax = pool.job("lax", latency_s=0.3)
    tight = pool.job("tight", latency_s=0.1)
    lax.burst(0.0, 26)  # work for 0.26 s, all due at 0.3
    tight.emit(0.15)  # due at 0.25
    tight.emit(0.22)  # due at 0.32, after the others
    pool.run()
    assert names(pool) == ["lax"] * 15 + ["tight"] + ["lax"] * 11 + ["tight"]


def test_among_equals_the_first_to_come_is_the_first_to_run() -> None:
    pool = Pool(Edf, workers=2)
    job = pool.job("job", latency_s=0.1)
    for rows in range(1, 8):
        job.emit(0.0, rows)
    pool.run()
    assert [each.message.payload for each in pool.ran] == [1, 2, 3, 4, 5, 6, 7]


def test_a_job_without_an_objective_gives_way_but_not_for_ever() -> None:
    pool = Pool(Edf, workers=2)
    patient = pool.job("patient")
    urgent = pool.job("urgent", latency_s=0.5)
    urgent.steady(0.0, 12.0, per_s=101)  # more than the worker can do
    patient.emit(0.105)
    pool.run()
    (only,) = patient.ran
    assert PATIENCE_S - 1.0 < only.latency_s < PATIENCE_S + 0.5


def test_without_any_objective_it_is_first_in_first_out() -> None:
    runs = []
    for strategy in (Edf, Fifo):
        pool = Pool(strategy, workers=3)
        for index, name in enumerate(("red", "blue")):
            pool.job(name, index + 1).random(0.0, 1.0, 150, seed=index)
        runs.append([each.message.payload for each in pool.run().ran])
    assert runs[0] == runs[1]


def test_critical_messages_have_no_rank_of_their_own() -> None:
    stage = Stage(strategy=Edf())
    soon = Data("job/b/0", 1, T, 11, Lane.INPUT, 1, 0, "soon", 0.0, 0.1)
    assert due(soon) == 0.1
    stage.receives(row("a", 1), program(1, "W", cut=((10, 1, 1),)))
    stage.runs("a")
    critical = stage.worker.next()
    assert critical is not None
    assert (critical.payload, due(critical)) == ("W", PATIENCE_S)


def test_nothing_is_ever_sent_elsewhere() -> None:
    pool = Pool(Edf, workers=4)
    job = pool.job("job", latency_s=0.02)
    job.burst(0.0, 50)
    pool.run()
    assert job.ran_at() == {1: 50}
    assert job.late() == 49
