"""Snapshots: their barriers, how they give way to SYNC_ONEs, what the kernel keeps of an actor and takes back."""

import msgspec
import pytest

from dirigo.kernel import (
    Context,
    CriticalOutput,
    CriticalRun,
    Directory,
    FunctionSpec,
    Granularity,
    Kept,
    MailboxState,
    PolicyError,
    ProtocolError,
    States,
    Worker,
)
from dirigo.kernel.interface.message import Critical, SyncProgram
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.wait_reasons import waiting_for
from dirigo.state import StateSet
from kernel.scenario import (
    AT,
    A,
    D,
    E,
    S,
    Stage,
    Steered,
    T,
    critical,
    critical_ack,
    forwarded,
    new_view,
    program,
    program_ack,
    reply,
    row,
    sync_request,
    unsync,
)

RUNNABLE, DRAINING, CRITICAL = MailboxState.RUNNABLE, MailboxState.DRAINING, MailboxState.CRITICAL


def snapshot(number: int, barrier: int, *, sender: str = S, cut: tuple[tuple[int, int, int], ...] = ()) -> SyncProgram:
    """A program with the barrier of one snapshot, whose payload is ``n1`` for the first."""
    plain = program(number, f"n{barrier}", sender=sender, cut=cut, one=barrier)
    return msgspec.structs.replace(plain, granularity=Granularity.SNAPSHOT)


def next_run(stage: Stage) -> CriticalRun:
    run = stage.worker.next()
    assert isinstance(run, CriticalRun)
    stage.ends()
    return run


def lessor(stage: Stage) -> Lessor:
    return stage.worker.lessor(A)


# --- the barrier -------------------------------------------------------------------------------------------------------


def test_a_snapshot_waits_for_every_upstream_actor_and_runs_once() -> None:
    stage = Stage().receives(snapshot(1, 1, cut=((10, 1, 1),))).is_in(RUNNABLE)
    stage.receives(snapshot(1, 1, sender=T), row("late", 2)).is_in(DRAINING).receives(row("a", 1)).runs("a")
    run = next_run(stage)
    assert run.parts == ((S, 1, "n1"), (T, 1, "n1"))
    assert (run.granularity, run.barrier, run.final, run.is_void) == (Granularity.SNAPSHOT, 1, False, False)
    stage.runs("late").is_idle()


def test_a_snapshot_collects_the_partial_states_of_lessees() -> None:
    stage = Stage()
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1), snapshot(1, 1, cut=((10, 1, 1),)), snapshot(1, 1, sender=T)).forgets()
    assert stage.is_idle().receives(reply(1, 2, "a")).runs("n1").seen() == ["a", "n1"]
    stage.sends(critical_ack(1), critical_ack(1, to=T), unsync(1, 2))


def test_the_barriers_of_snapshots_and_sync_ones_are_counted_apart() -> None:
    stage = Stage()
    stage.source().emit(critical(A, "one", one=True))
    stage.emits(CriticalOutput(A, "n1", Granularity.SNAPSHOT)).receives(program_ack(1))
    stage.emits(CriticalOutput(A, "n2", Granularity.SNAPSHOT)).receives(program_ack(2))
    stage.emits(critical(A, "one", one=True)).receives(program_ack(3))
    programs = [message for message in stage.worker.outgoing if isinstance(message, SyncProgram)]
    assert [(each.granularity.name, each.barrier) for each in programs] == [
        ("ONE", 1),
        ("SNAPSHOT", 1),
        ("SNAPSHOT", 2),
        ("ONE", 2),
    ]
    assert {each.blocks for each in programs} == {(S, T)}
    assert {each.criticals for each in programs} == {(Critical("one"),), (Critical("n1"),), (Critical("n2"),)}


def test_an_upstream_actor_that_has_ended_is_counted_out() -> None:
    stage = Stage().receives(program(1, "end", sender=T, final=True)).runs("end").receives(snapshot(1, 1))
    assert next_run(stage).parts == ((S, 1, "n1"),)


def test_a_snapshot_waits_until_an_end_that_came_before_it_has_run() -> None:
    stage = Stage().receives(snapshot(1, 1), program(1, "end", sender=T, cut=((11, 1, 1),), final=True)).is_idle()
    stage.receives(row("t", 1, sender=T)).runs("t", "end")
    assert next_run(stage).parts == ((S, 1, "n1"),)


def test_two_snapshots_cannot_come_in_another_order() -> None:
    with pytest.raises(ProtocolError, match=r"sent snapshot 1 after snapshot 2"):
        Stage().receives(snapshot(1, 2), snapshot(2, 1))


def test_a_snapshot_is_never_final() -> None:
    with pytest.raises(ValueError, match="a snapshot ends nothing"):
        Context(A, StateSet({})).emit_critical(D, "n", granularity=Granularity.SNAPSHOT, final=True)


def test_a_strategy_cannot_begin_one() -> None:
    with pytest.raises(PolicyError, match="only sources begin those"):
        Stage().worker.send_critical(A, D, "n", Granularity.SNAPSHOT)


def test_a_snapshot_that_is_not_complete_says_for_whom_it_waits() -> None:
    assert waiting_for(lessor(Stage().receives(snapshot(1, 1)))) == [f"snapshot 1 of {T}"]


# --- giving way --------------------------------------------------------------------------------------------------------


def test_a_snapshot_gives_way_to_a_sync_one_that_waits_for_it_in_turn() -> None:
    stage = Stage().receives(snapshot(1, 1), program(2, "one", one=1)).is_idle()
    stage.receives(program(1, "one", sender=T, one=1))
    run = next_run(stage)
    assert (run.parts, run.is_void) == (((S, 1, "n1"),), True)
    assert next_run(stage).parts == ((S, 2, "one"), (T, 1, "one"))
    stage.forgets().receives(snapshot(2, 1, sender=T)).sends(program_ack(2, to=T), critical_ack(2, to=T)).is_idle()
    assert stage.seen() == ["n1", "one"]


def test_it_gives_way_whichever_of_the_two_came_first() -> None:
    stage = Stage().receives(program(1, "one", sender=T, one=1)).is_idle().receives(snapshot(1, 1))
    assert next_run(stage).is_void


def test_what_follows_a_barrier_that_is_dropped_runs_behind_its_dependencies_no_sooner() -> None:
    stage = Stage().receives(snapshot(1, 1), program(1, "one", sender=T, one=1)).runs("n1")
    stage.receives(program(2, "one", one=1)).runs("one")
    stage.receives(snapshot(2, 1, sender=T, cut=((11, 1, 1),)), program(3, "W", sender=T, cut=((11, 1, 1),))).is_idle()
    stage.receives(row("t", 1, sender=T)).runs("t", "W").is_idle()


def test_the_next_snapshot_is_whole_again() -> None:
    stage = Stage().receives(snapshot(1, 1), program(1, "one", sender=T, one=1)).runs("n1")
    stage.receives(snapshot(2, 1, sender=T), snapshot(3, 2, sender=T), program(2, "one", one=1)).runs("one")
    stage.receives(snapshot(3, 2))
    run = next_run(stage)
    assert (run.barrier, run.is_void, len(run.parts)) == (2, False, 2)


def test_two_snapshots_give_way_to_one_sync_one() -> None:
    stage = Stage().receives(snapshot(1, 1), snapshot(2, 2), program(3, "one", one=1))
    stage.receives(program(1, "one", sender=T, one=1))
    assert [next_run(stage).is_void, next_run(stage).is_void] == [True, True]
    stage.runs("one").receives(snapshot(2, 1, sender=T), snapshot(3, 2, sender=T)).is_idle()
    stage.receives(snapshot(4, 3), snapshot(4, 3, sender=T))
    assert not next_run(stage).is_void


def test_it_does_not_give_way_to_what_can_run() -> None:
    stage = Stage().receives(snapshot(1, 1), program(1, "W", sender=T)).runs("W").is_idle()
    stage.receives(snapshot(2, 1, sender=T))
    assert not next_run(stage).is_void


def test_what_a_void_one_puts_out_leaves_once() -> None:
    stage = Stage(says={"n1": (CriticalOutput(D, "void", Granularity.SNAPSHOT),)})
    stage.receives(snapshot(1, 1), program(1, "one", sender=T, one=1)).forgets().runs("n1")
    (sent,) = stage.worker.outgoing
    assert isinstance(sent, SyncProgram)
    assert (sent.to, sent.granularity, sent.barrier) == (D, Granularity.SNAPSHOT, 1)
    stage.receives(program_ack(1, to=A, by=D), program(2, "one", one=1)).runs("one").forgets()
    stage.receives(snapshot(2, 1, sender=T)).sends(program_ack(2, to=T), critical_ack(2, to=T))


# --- what is kept ------------------------------------------------------------------------------------------------------


class Alarm:
    """A message "5" sets a timer that is due at 5."""

    def __init__(self, states: States) -> None: ...

    def on_message(self, context: Context, payload: str) -> None:
        context.set_timer(float(payload), f"due {payload}")

    def on_critical(self, context: Context, critical: CriticalRun) -> None: ...


def alarm() -> Worker:
    directory = Directory()
    directory.add_job([FunctionSpec(A, 1, Alarm, lambda: StateSet({}), (S, T))])
    return Worker(1, directory, Steered())


def words(worker: Worker) -> list[str]:
    """Run all that can run."""
    ran = []
    while (message := worker.next()) is not None:
        ran.append(str(message.payload))
        worker.apply()
        worker.finish()
    return ran


def test_timers_are_kept_those_included_that_have_fired_and_have_not_run() -> None:
    worker = alarm()
    for seq, due in enumerate(("7", "5", "9"), start=1):
        worker.receive(row(due, seq))
    assert words(worker) == ["7", "5", "9"]
    worker.receive(snapshot(1, 1, cut=((10, 1, 3),)))
    worker.receive(snapshot(1, 1, sender=T))
    assert worker.next() is not None  # the snapshot runs
    worker.now = 8.0
    worker.fire_timers()
    kept = worker.lessor(A).keep()
    assert kept == Kept((), ((8.0, "due 5"), (8.0, "due 7"), (9.0, "due 9")))
    worker.apply()
    worker.finish()
    assert words(worker) == ["due 5", "due 7"]

    again = alarm()
    again.restore(A, kept)
    assert again.next_timer() == 8.0
    again.now = 9.0
    again.fire_timers()
    assert words(again) == ["due 5", "due 7", "due 9"]


def test_a_timer_that_fires_when_the_snapshot_is_next_waits_and_is_kept() -> None:
    worker = alarm()
    worker.receive(row("5", 1))
    worker.receive(snapshot(1, 1, cut=((10, 1, 1),)))
    worker.receive(snapshot(1, 1, sender=T))
    worker.now = 6.0
    message = worker.next()
    worker.apply()
    worker.finish()
    worker.fire_timers()
    assert message is not None
    assert worker.next() is not None
    assert worker.lessor(A).keep().timers == ((6.0, "due 5"),)


def test_what_is_kept_is_asked_for_while_the_snapshot_runs_and_not_otherwise() -> None:
    stage = Stage()
    with pytest.raises(ProtocolError, match="no snapshot runs"):
        lessor(stage).keep()
    stage.receives(row("a", 1)).starts("a")
    with pytest.raises(ProtocolError, match="no snapshot runs"):
        lessor(stage).keep()
    stage.ends().receives(snapshot(1, 1), program(1, "one", sender=T, one=1)).starts("n1")
    with pytest.raises(ProtocolError, match="no snapshot runs"):  # it is void: nothing is kept
        lessor(stage).keep()


def test_upstream_actors_that_have_ended_are_kept_and_counted_out_again() -> None:
    stage = Stage().receives(program(1, "end", sender=T, final=True)).runs("end").receives(snapshot(1, 1)).starts("n1")
    kept = lessor(stage).keep()
    assert kept == Kept((T,), ())

    again = Stage()
    again.worker.restore(A, kept)
    again.receives(program(1, "one", one=1)).runs("one").receives(snapshot(2, 1))
    assert next_run(again).parts == ((S, 2, "n1"),)
    with pytest.raises(ProtocolError, match="has ended"):
        again.receives(row("t", 1, sender=T))


def test_an_actor_whose_upstream_actors_have_all_ended_is_restored_and_silent() -> None:
    stage = Stage()
    stage.worker.restore(A, Kept((S, T), ()))
    stage.is_idle().sends_nothing().is_in(RUNNABLE)
    assert waiting_for(lessor(stage)) == []
    assert stage.worker.barriers == {}


def test_lessees_read_the_restored_state_before_the_first_round() -> None:
    stage = Stage(shares=True)
    stage.instance().states.merge(reply(1, 2, "kept").partial)
    stage.worker.restore(A, Kept((), ()))
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1)).sends(new_view(1, 2, "kept"), forwarded("a", 1, 2, view=1))
    stage.receives(program(1, "W", cut=((10, 1, 1),)))
    stage.sends(program_ack(1), sync_request(2, 2, forwards=1))  # newer than the view


def test_without_replicated_states_there_is_no_view_to_begin_with() -> None:
    stage = Stage()
    stage.worker.restore(A, Kept((), ()))
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1)).sends(forwarded("a", 1, 2))


def test_an_actor_that_has_taken_part_in_something_cannot_be_restored() -> None:
    for first in (row("a", 1), program(1, "W"), snapshot(1, 1)):
        stage = Stage().receives(first)
        with pytest.raises(ProtocolError, match="before it was restored"):
            stage.worker.restore(A, Kept((), ()))
    with pytest.raises(ProtocolError, match="it is a lessee"):
        Stage().worker.restore(E, Kept((), ()))


def test_what_is_kept_travels_as_it_is() -> None:
    kept = Kept((S,), ((5.0, "due"),))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=Kept) == kept
    assert AT[S] == 10


def test_a_function_leaves_what_it_captured_in_its_context() -> None:
    context = Context(A, StateSet({}))
    assert context.captured is None
    context.captured = {"sum": 1}
    assert context.captured == {"sum": 1}
