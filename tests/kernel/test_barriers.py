"""Which barriers run together: SYNC_CHANNEL and SYNC_ONE, FIFOs per upstream actor, and upstream actors that end."""

import msgspec
import pytest

from dirigo.kernel import CriticalRun, Granularity, MailboxState, ProtocolError
from dirigo.kernel.interface.message import Critical
from kernel.scenario import A, D, S, Stage, T, critical, critical_ack, program, program_ack, row

RUNNABLE, DRAINING, CRITICAL = MailboxState.RUNNABLE, MailboxState.DRAINING, MailboxState.CRITICAL


def next_run(stage: Stage) -> CriticalRun:
    run = stage.worker.next()
    assert isinstance(run, CriticalRun)
    stage.ends()
    return run


def test_all_critical_messages_of_a_program_run_in_order_within_one_round() -> None:
    stage = Stage().receives(program(1, "U", "V", "W")).sends(program_ack(1))
    stage.runs("U", "V").is_in(CRITICAL).sends_nothing().runs("W").sends(critical_ack(1)).is_in(RUNNABLE)


def test_a_critical_run_tells_where_it_comes_from() -> None:
    run = next_run(Stage().receives(program(1, "W")))
    assert run == CriticalRun(A, 1, ((S, 1, "W"),), Granularity.CHANNEL, 0, False)


def test_only_the_last_critical_message_of_a_final_program_is_final() -> None:
    stage = Stage().receives(program(1, "V", "end", final=True))
    assert [next_run(stage).final, next_run(stage).final] == [False, True]


def test_barriers_of_two_upstream_actors_that_are_ready_together_run_in_one_round_in_the_order_of_addresses() -> None:
    stage = Stage().receives(row("s", 1)).starts("s")
    stage.receives(program(1, "WT", sender=T), program(1, "WS", cut=((10, 1, 1),))).is_in(DRAINING).ends()
    # T's program started the round, S's came later and waits for the next one.
    stage.runs("WT").is_in(CRITICAL).runs("WS")
    assert stage.told().count("a barrier is ready") == 2

    stage = Stage().receives(program(1, "one", sender=T, one=1), program(2, "WT", sender=T)).is_in(RUNNABLE)
    stage.receives(program(1, "V")).is_in(CRITICAL).receives(program(2, "one", one=1)).runs("V", "one")
    stage.receives(program(3, "WS")).runs("WT")  # S's came too late for the round that runs T's
    stage.runs("WS")


def test_barriers_that_became_ready_during_a_round_run_together_in_the_next() -> None:
    stage = Stage().receives(program(1, "first")).starts("first")
    stage.receives(program(1, "WT", sender=T), program(2, "WS")).ends()
    stage.forgets().runs("WS").is_in(CRITICAL).sends_nothing().runs("WT")
    stage.sends(critical_ack(2), critical_ack(1, to=T))
    assert stage.instance().last_round == 2  # type: ignore[attr-defined]


def test_two_programs_of_one_upstream_actor_never_share_a_round() -> None:
    stage = Stage().receives(program(1, "first", sender=T)).starts("first")
    stage.receives(program(1, "V"), program(2, "W", cut=((10, 1, 1),)), row("a", 1)).ends()
    stage.runs("V").is_in(DRAINING).runs("a", "W")


# --- SYNC_ONE ----------------------------------------------------------------------------------------------------------


def test_a_sync_one_waits_for_every_upstream_actor_and_runs_once() -> None:
    stage = Stage(says={"WS": (critical(D, "d"),)})
    stage.receives(program(1, "WS", one=4)).is_in(RUNNABLE).is_idle().sends(program_ack(1))
    stage.receives(program(1, "WT", sender=T, one=4)).sends(program_ack(1, to=T))
    run = next_run(stage)
    assert run.parts == ((S, 1, "WS"), (T, 1, "WT"))
    assert (run.granularity, run.barrier, run.final) == (Granularity.ONE, 4, False)
    stage.sends(program(1, "d", sender=A, to=D)).receives(program_ack(1, to=A, by=D))
    stage.sends(critical_ack(1), critical_ack(1, to=T)).is_idle()


def test_the_cut_of_an_incomplete_sync_one_holds_its_upstream_actor_and_no_other() -> None:
    stage = Stage().receives(program(1, "WS", cut=((10, 1, 1),), one=1))
    stage.receives(row("pending", 2), row("t", 1, sender=T), row("dependency", 1)).runs("t", "dependency").is_idle()
    stage.receives(program(1, "WT", sender=T, cut=((11, 1, 1),), one=1)).runs("WS", "pending")


def test_an_incomplete_sync_one_delays_no_barrier_ahead_of_it() -> None:
    stage = Stage().receives(program(1, "one", one=1), program(1, "W", sender=T)).runs("W")
    stage.receives(program(2, "one", sender=T, one=1)).runs("one")


def test_a_barrier_behind_an_incomplete_sync_one_waits() -> None:
    stage = Stage().receives(program(1, "one", one=1), program(2, "W")).is_idle().is_in(RUNNABLE)
    stage.receives(program(1, "one", sender=T, one=1)).runs("one", "W")


def test_a_sync_one_that_heads_one_fifo_waits_behind_a_barrier_in_the_other() -> None:
    stage = Stage().receives(program(1, "one", one=1)).receives(program(1, "V", sender=T)).starts("V")
    stage.receives(program(2, "one", sender=T, one=1)).ends().runs("one")


def test_different_sync_ones_at_two_heads_do_not_make_one_barrier() -> None:
    stage = Stage().receives(program(1, "one", one=1), program(1, "two", sender=T, one=2)).is_idle()
    stage.is_in(RUNNABLE)


def test_a_sync_channel_at_the_head_is_no_part_of_a_sync_one_with_the_same_id() -> None:
    stage = Stage().receives(program(1, "one", one=1)).forgets()
    stage.receives(program(1, "W", sender=T)).runs("W").sends(program_ack(1, to=T), critical_ack(1, to=T)).is_idle()


def test_a_sync_one_takes_the_earliest_deadline_of_its_parts() -> None:
    stage = Stage()
    for sender, created, deadline in ((S, 2.0, 8.0), (T, 1.0, 9.0)):
        stage.receives(
            msgspec.structs.replace(program(1, "W", sender=sender, one=1), criticals=(Critical("W", created, deadline),))
        )
    run = next_run(stage)
    assert (run.created, run.deadline) == (1.0, 8.0)


# --- the end of an upstream actor ----------------------------------------------------------------------------------------


def test_an_upstream_actor_that_ended_is_not_waited_for() -> None:
    stage = Stage().receives(program(1, "end", sender=T, final=True)).runs("end")
    stage.receives(program(1, "one", one=1))
    assert next_run(stage).parts == ((S, 1, "one"),)


def test_an_upstream_actor_ends_when_its_last_barrier_has_run_and_not_before() -> None:
    stage = Stage().receives(program(1, "one", one=1)).is_in(RUNNABLE)
    stage.receives(program(1, "end", sender=T, cut=((11, 1, 1),), final=True)).is_in(DRAINING).is_idle()
    stage.receives(row("t", 1, sender=T)).runs("t", "end", "one")


def test_a_final_sync_one_ends_all_its_upstream_actors() -> None:
    stage = Stage().receives(program(1, "end", one=1, final=True), program(1, "end", sender=T, one=1, final=True))
    assert next_run(stage).final
    with pytest.raises(ProtocolError, match="job/t/0 has ended but sent program 2"):
        stage.receives(program(2, "late", sender=T))


@pytest.mark.parametrize("executed", [False, True])
def test_nothing_may_follow_the_end(executed: bool) -> None:
    stage = Stage().receives(program(1, "end", cut=((10, 1, 1),), final=True))
    if executed:
        stage.receives(row("a", 1)).runs("a", "end")
    stage.forgets()
    with pytest.raises(ProtocolError) as caught:
        stage.receives(program(2, "late"))
    assert caught.value.rule == "nothing-after-the-end"
    stage.sends_nothing()


# --- stamps ------------------------------------------------------------------------------------------------------------


def test_a_program_delivered_twice_is_acknowledged_and_executed_once() -> None:
    stage = Stage().receives(program(1, "W"), program(1, "W")).sends(program_ack(1))
    stage.runs("W").receives(program(1, "W")).sends(critical_ack(1)).is_idle()
    assert "dropped a stale program 1 of job/s/0" in stage.told()


def test_a_program_ahead_of_its_number_breaks_a_rule_and_changes_nothing() -> None:
    stage = Stage()
    with pytest.raises(ProtocolError, match="program 2 of job/s/0 came too early"):
        stage.receives(program(2, "W"))
    stage.sends_nothing().is_idle().receives(program(1, "V")).runs("V")


def test_sync_ones_come_in_one_order() -> None:
    stage = Stage().receives(program(1, "two", one=2)).forgets()
    with pytest.raises(ProtocolError, match="sent SYNC_ONE 1 after SYNC_ONE 2") as caught:
        stage.receives(program(2, "one", one=1))
    assert caught.value.rule == "one-order"


def test_a_sync_one_ends_all_of_its_upstreams_or_none() -> None:
    stage = Stage().receives(program(1, "end", one=1, final=True)).forgets()
    with pytest.raises(ProtocolError, match="SYNC_ONE 1 ends only some upstreams") as caught:
        stage.receives(program(1, "end", one=1, sender=T))
    assert caught.value.rule == "one-end"
