"""A critical message of an actor that is not SEQUENTIAL starts a barrier of the actor on itself."""

import pytest

from dirigo.kernel import CriticalRun, Granularity, MailboxState, ProtocolError
from kernel.scenario import (
    A,
    D,
    E,
    S,
    Stage,
    T,
    critical,
    critical_ack,
    critical_run,
    forwarded,
    handed_back,
    intent,
    out,
    program,
    program_ack,
    reply,
    row,
    sync_request,
    unsync,
)

RUNNABLE, DRAINING = MailboxState.RUNNABLE, MailboxState.DRAINING
BLOCKED, CRITICAL = MailboxState.BLOCKED, MailboxState.CRITICAL


def test_a_critical_message_from_a_regular_one_leaves_in_a_round() -> None:
    stage = Stage(says={"a": (out(D, "x"), critical(D, "W"), out(D, "y"), out(E, "z"))}).receives(row("a", 1)).runs("a")
    # Until its lessees have been collected (there are none) the critical message and all that follows was held.
    stage.sends(
        row("x", 1, sender=A, to=D),
        program(1, "W", sender=A, to=D, cut=((1, 5, 1),)),
        row("z", 1, sender=A, to=E),
    ).is_in(CRITICAL)
    stage.receives(program_ack(1, to=A, by=D)).sends(row("y", 2, sender=A, to=D)).is_in(RUNNABLE)


def test_the_outputs_are_withheld_until_the_lessees_have_replied() -> None:
    stage = Stage(says={"b": (out(D, "x"), critical(D, "W"), out(E, "z"))})
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1), row("b", 2)).forgets().runs("b")
    stage.sends(row("x", 1, sender=A, to=D), sync_request(1, 2, forwards=1)).is_in(BLOCKED)
    stage.receives(reply(1, 2, "a", sent=((D, 5, 3),)))
    stage.sends(program(1, "W", sender=A, to=D, cut=((1, 5, 1), (2, 5, 3))), row("z", 1, sender=A, to=E))
    stage.receives(program_ack(1, to=A, by=D)).sends(unsync(1, 2, closed=(D,)))


def test_a_message_of_the_actor_to_itself_runs_alone_on_the_whole_state() -> None:
    stage = Stage(says={"b": (critical(A, "alone"), out(D, "after")), "alone": (out(D, "last"),)})
    stage.steering.elsewhere["a"] = 2
    # Running alone comes later, so it holds up nothing that the function puts out now.
    stage.receives(row("a", 1), row("b", 2)).forgets().runs("b")
    stage.sends(row("after", 1, sender=A, to=D), sync_request(1, 2, forwards=1)).is_idle()
    stage.receives(reply(1, 2, "a")).sends_nothing().starts("alone")
    assert stage.worker.running == critical_run("alone")
    assert stage.seen() == ["b", "a"]
    stage.ends().sends(row("last", 2, sender=A, to=D), unsync(1, 2)).is_in(RUNNABLE)


def test_a_self_barrier_has_no_cut_and_sends_no_acknowledgment() -> None:
    stage = Stage(says={"a": (critical(A, "alone"),)}).receives(row("a", 1), row("b", 2), row("t", 1, sender=T))
    stage.runs("a", "alone", "b", "t").sends_nothing()


def test_a_self_barrier_out_of_a_critical_message_runs_in_the_same_round() -> None:
    stage = Stage(says={"W": (out(D, "x"), critical(A, "again"), critical(D, "d")), "again": (out(D, "y"),)})
    stage.receives(program(1, "W", "V"), row("pending", 1)).forgets().runs("W").sends(row("x", 1, sender=A, to=D))
    # What W held back comes before V and, above all, before what is pending.
    stage.runs("again").sends(row("y", 2, sender=A, to=D), program(1, "d", sender=A, to=D, cut=((1, 5, 2),)))
    stage.runs("V").is_in(CRITICAL).receives(program_ack(1, to=A, by=D)).sends(critical_ack(1)).runs("pending")
    assert stage.worker.lessor(A).last_round == 1


def test_a_strategy_can_have_an_actor_run_alone() -> None:
    stage = Stage().receives(row("a", 1)).starts("a").asks(lambda worker: worker.run_alone(A, "alone")).is_in(RUNNABLE)
    stage.ends().is_in(CRITICAL).runs("alone").is_in(RUNNABLE)


def test_what_a_strategy_asks_for_while_the_actor_is_alone_comes_after_outputs_that_are_still_to_leave() -> None:
    stage = (
        Stage(says={"a": (critical(A, "one"), out(D, "y")), "alone": (critical(D, "d"),)}).receives(row("a", 1)).runs("a")
    )
    stage.starts("one").asks(lambda worker: worker.run_alone(A, "alone")).ends().runs("alone")
    stage.sends(row("y", 1, sender=A, to=D), program(1, "d", sender=A, to=D, cut=((1, 5, 1),)))


def test_what_a_strategy_asks_for_while_the_actor_is_alone_keeps_its_order() -> None:
    stage = Stage().receives(program(1, "W")).starts("W")
    stage.asks(lambda worker: worker.run_alone(A, "x")).asks(lambda worker: worker.run_alone(A, "y")).ends().runs("x", "y")


def test_a_strategy_can_send_a_critical_message_downstream_and_choose_its_granularity() -> None:
    says = {"a": (out(D, "x"),), "b": (out(D, "y"),)}
    for granularity, one in ((Granularity.CHANNEL, 0), (Granularity.ONE, 1)):
        stage = Stage(says=says).receives(row("a", 1), row("b", 2)).runs("a").forgets().starts("b")
        stage.worker.send_critical(A, D, "now", granularity)
        stage.worker.do_requests()
        stage.ends().sends(program(1, "now", sender=A, to=D, cut=((1, 5, 1),), one=one))
        stage.receives(program_ack(1, to=A, by=D)).sends(row("y", 2, sender=A, to=D)).is_in(RUNNABLE)


def test_a_critical_message_that_a_strategy_sends_while_the_actor_is_alone_leaves_at_once() -> None:
    stage = Stage(says={"W": (out(D, "x"),)}).receives(program(1, "W")).forgets().starts("W")
    stage.asks(lambda worker: worker.send_critical(A, D, "now")).ends()
    stage.sends(program(1, "now", sender=A, to=D)).receives(program_ack(1, to=A, by=D))
    stage.sends(row("x", 1, sender=A, to=D), critical_ack(1))


def test_after_the_end_of_its_sender_a_critical_message_of_a_strategy_is_not_sent() -> None:
    stage = Stage(says={"end": (critical(D, "last", final=True),)}).receives(program(1, "end", final=True)).forgets()
    stage.runs("end").sends(program(1, "last", sender=A, to=D, final=True))
    stage.asks(lambda worker: worker.send_critical(A, D, "now")).sends_nothing()
    stage.receives(program_ack(1, to=A, by=D)).forgets()
    stage.asks(lambda worker: worker.send_critical(A, D, "now")).sends_nothing().is_idle()


def test_a_strategy_can_send_critical_messages_along_edges_and_from_lessors_only() -> None:
    with pytest.raises(ProtocolError, match="which is not among its downstream actors"):
        Stage().worker.send_critical(A, S, "now")
    with pytest.raises(ProtocolError, match="it is a lessee; the lessor is at w1"):
        Stage(2).worker.send_critical(A, D, "now")


# --- what is emitted while a critical message waits ------------------------------------------------------------------------


def test_later_executions_put_out_behind_a_critical_message_that_waits() -> None:
    stage = Stage(says={"a": (out(D, "x"), critical(D, "W")), "b": (out(D, "y"), out(E, "z")), "V": (critical(D, "d"),)})
    stage.receives(program(1, "V", cut=((10, 1, 2),)), row("a", 1), row("b", 2)).forgets().is_in(DRAINING)
    stage.runs("a").sends(row("x", 1, sender=A, to=D)).runs("b")
    # "y" came of a message that the barrier waits for: it is after W, and before what the barrier puts out.
    stage.sends(program(1, "W", sender=A, to=D, cut=((1, 5, 1),)), row("z", 1, sender=A, to=E)).runs("V")
    stage.receives(program_ack(1, to=A, by=D))
    stage.sends(row("y", 2, sender=A, to=D), program(2, "d", sender=A, to=D, cut=((1, 5, 2),)))


def test_after_the_barrier_outputs_leave_at_once_again() -> None:
    stage = Stage(says={"a": (critical(D, "W"),), "b": (out(D, "y"),)}).receives(row("a", 1)).runs("a").forgets()
    stage.receives(program_ack(1, to=A, by=D), row("b", 2)).runs("b").sends(row("y", 1, sender=A, to=D)).is_in(RUNNABLE)


def test_what_lessees_hand_over_leaves_in_the_order_in_which_it_was_put_out() -> None:
    stage = Stage()
    stage.steering.elsewhere = {"a": 2, "b": 2}
    stage.receives(row("a", 1), row("b", 2)).forgets()
    stage.receives(intent(2, 2, out(D, "y")), reply(1, 2, returned=2)).receives(intent(1, 2, critical(D, "W")))
    stage.sends(sync_request(1, 2, forwards=2), program(1, "W", sender=A, to=D))
    stage.receives(program_ack(1, to=A, by=D)).sends(row("y", 1, sender=A, to=D), unsync(1, 2, closed=(D,)))


# --- intents of lessees --------------------------------------------------------------------------------------------------


def test_an_intent_of_a_lessee_starts_a_round() -> None:
    stage = Stage()
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1)).sends(forwarded("a", 1, 2))
    stage.receives(intent(1, 2, critical(D, "W"), out(D, "y"))).sends(sync_request(1, 2, forwards=1)).is_in(BLOCKED)
    stage.receives(reply(1, 2, "a", sent=((D, 5, 1),), returned=1))
    stage.sends(program(1, "W", sender=A, to=D, cut=((2, 5, 1),)))
    stage.receives(program_ack(1, to=A, by=D)).sends(row("y", 1, sender=A, to=D), unsync(1, 2, closed=(D,)))


def test_an_intent_delivered_twice_is_done_once() -> None:
    stage = Stage()
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1), intent(1, 2, critical(A, "alone")), intent(1, 2, critical(A, "alone")))
    stage.receives(reply(1, 2, returned=1)).runs("alone").receives(intent(1, 2, critical(A, "alone"))).is_idle()


def test_an_intent_that_comes_while_the_lessor_drains_joins_the_round_before_the_barriers() -> None:
    stage = Stage()
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1), program(1, "W", cut=((10, 1, 2),))).is_in(DRAINING)
    stage.receives(intent(1, 2, critical(A, "alone")), row("b", 2)).runs("b")
    stage.receives(reply(1, 2, "a", returned=1)).forgets()
    stage.runs("alone").sends_nothing().runs("W").sends(critical_ack(1), unsync(1, 2))
    assert stage.worker.lessor(A).last_round == 1


def test_the_round_waits_for_an_intent_that_its_reply_overtook() -> None:
    stage = Stage()
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1), program(1, "W", cut=((10, 1, 1),)), reply(1, 2, "a", returned=1)).is_in(DRAINING)
    stage.receives(intent(1, 2, critical(A, "alone"))).is_in(CRITICAL).runs("alone", "W")


def test_intents_and_messages_handed_back_share_one_counter() -> None:
    stage = Stage()
    stage.steering.elsewhere = {"a": 2, "b": 2}
    stage.receives(row("a", 1), row("b", 2), program(1, "W", cut=((10, 1, 2),)), intent(2, 2, critical(A, "alone")))
    stage.receives(reply(1, 2, "a", returned=2)).is_in(DRAINING)
    stage.receives(handed_back("b", 1, 2)).runs("b", "alone", "W")


def test_intents_of_one_execution_stay_together_and_in_order() -> None:
    stage = Stage(says={"a": (critical(A, "one"), critical(A, "two")), "one": (out(D, "x"),)})
    stage.receives(row("a", 1)).runs("a", "one").sends(row("x", 1, sender=A, to=D)).is_in(CRITICAL).runs("two").is_in(
        RUNNABLE
    )


def test_an_upstream_barrier_that_is_ready_runs_in_the_round_that_an_intent_started() -> None:
    stage = Stage(says={"a": (critical(A, "alone"),)}).receives(row("a", 1)).starts("a")
    stage.receives(program(1, "W", cut=((10, 1, 1),))).ends()
    run = stage.worker.next()
    assert isinstance(run, CriticalRun)
    assert run.parts == ((A, 0, "alone"),)
    stage.ends().is_in(CRITICAL).runs("W")
    assert stage.worker.lessor(A).last_round == 1
    assert stage.worker.lessor(A).upstreams[S].last_program == 1
