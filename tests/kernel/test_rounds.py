"""A round at the lessor: without lessees, with one, with two; what its lessees reply and hand back; how it ends."""

from itertools import permutations

import pytest

from dirigo.kernel import MailboxState, ProtocolError
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.wait_reasons import waiting_for
from kernel.scenario import (
    A,
    D,
    E,
    S,
    Stage,
    T,
    critical,
    critical_ack,
    forwarded,
    grant,
    handed_back,
    out,
    program,
    program_ack,
    registration,
    reply,
    request_ack,
    row,
    sync_request,
    unsync,
)

RUNNABLE, DRAINING = MailboxState.RUNNABLE, MailboxState.DRAINING
BLOCKED, CRITICAL = MailboxState.BLOCKED, MailboxState.CRITICAL


def leased(*words: str, worker: int = 2) -> Stage:
    """A lessor that has forwarded these words, one after the other."""
    stage = Stage()
    for seq, word in enumerate(words, start=1):
        stage.steering.elsewhere[word] = worker
        stage.receives(row(word, seq))
    return stage.forgets()


def lessor(stage: Stage) -> Lessor:
    return stage.worker.lessor(A)


# --- without lessees ---------------------------------------------------------------------------------------------------


def test_without_lessees_a_round_is_the_same_machine_with_the_middle_empty() -> None:
    stage = Stage().receives(row("a", 1), program(1, "W", cut=((10, 1, 1),))).sends(program_ack(1)).is_in(DRAINING)
    stage.runs("a").is_in(CRITICAL).sends_nothing().runs("W").sends(critical_ack(1)).is_in(RUNNABLE).is_idle()
    assert stage.seen() == ["a", "W"]
    assert lessor(stage).round is None


def test_a_barrier_at_an_actor_that_never_had_a_message_runs_at_once() -> None:
    Stage().receives(program(1, "W")).sends(program_ack(1)).is_in(CRITICAL).runs("W").sends(critical_ack(1))


def test_the_program_is_acknowledged_before_and_the_critical_message_after_it_ran() -> None:
    stage = Stage().receives(program(1, "W")).sends(program_ack(1)).starts("W").sends_nothing()
    stage.ends().sends(critical_ack(1))


def test_a_running_message_delays_the_round() -> None:
    stage = Stage().receives(row("t", 1, sender=T)).starts("t").receives(program(1, "W")).is_in(DRAINING)
    stage.ends().runs("W")


def test_messages_that_the_strategy_kept_are_held_while_the_lessor_is_alone() -> None:
    Stage().receives(row("t", 1, sender=T), program(1, "W")).is_in(CRITICAL).runs("W", "t")


def test_a_program_that_comes_in_critical_waits_for_the_next_round() -> None:
    stage = Stage().receives(program(1, "V")).starts("V").forgets()
    stage.receives(program(1, "W", sender=T, cut=((11, 1, 1),))).sends(program_ack(1, to=T))
    stage.ends().sends(critical_ack(1)).is_in(DRAINING)
    stage.receives(row("t", 1, sender=T)).runs("t", "W").sends(critical_ack(1, to=T))


# --- with lessees ------------------------------------------------------------------------------------------------------


def test_one_lessee_is_asked_and_its_partial_state_is_there_when_the_critical_message_runs() -> None:
    stage = leased("b").receives(row("a", 2)).runs("a").receives(program(1, "W", cut=((10, 1, 2),)))
    stage.sends(program_ack(1), sync_request(1, 2, forwards=1)).is_in(BLOCKED).is_idle()
    stage.receives(reply(1, 2, "b")).is_in(CRITICAL)
    assert stage.seen() == ["a", "b"]
    stage.runs("W").sends(critical_ack(1), unsync(1, 2)).is_in(RUNNABLE)


def test_a_forwarded_message_counts_as_done_here() -> None:
    leased("a", "b").receives(program(1, "W", cut=((10, 1, 2),))).is_in(BLOCKED)


def test_the_request_leaves_as_soon_as_the_round_starts_and_names_the_last_forward() -> None:
    stage = leased("a", "b").receives(program(1, "W", cut=((10, 1, 3),))).is_in(DRAINING)
    stage.sends(program_ack(1), sync_request(1, 2, forwards=2))


@pytest.mark.parametrize("order", list(permutations((2, 3, 4))))
def test_replies_may_come_in_any_order_and_are_merged_in_the_order_of_workers(order: tuple[int, ...]) -> None:
    stage = Stage()
    stage.steering.elsewhere = {"four": 4, "two": 2, "three": 3}
    stage.receives(row("four", 1), row("own", 2), row("two", 3), row("three", 4)).runs("own")
    stage.sends(forwarded("four", 1, 4), forwarded("two", 1, 2), forwarded("three", 1, 3))
    stage.receives(program(1, "W", cut=((10, 1, 4),))).sends(
        program_ack(1), sync_request(1, 2, forwards=1), sync_request(1, 3, forwards=1), sync_request(1, 4, forwards=1)
    )
    words = {2: "two", 3: "three", 4: "four"}
    for worker in order:
        stage.is_in(BLOCKED).is_idle().receives(reply(1, worker, words[worker]))
    stage.is_in(CRITICAL).runs("W").sends(critical_ack(1), unsync(1, 2), unsync(1, 3), unsync(1, 4))
    assert stage.seen() == ["own", "two", "three", "four", "W"]


def test_a_reply_that_comes_before_the_lessor_has_drained_waits() -> None:
    stage = leased("b").receives(program(1, "W", cut=((10, 1, 2),)), reply(1, 2, "b")).is_in(DRAINING)
    stage.receives(row("a", 2)).runs("a", "W")
    assert stage.seen() == ["a", "b", "W"]


def test_a_reply_delivered_twice_is_merged_once() -> None:
    stage = leased("b").receives(program(1, "W", cut=((10, 1, 2),)), reply(1, 2, "b"), reply(1, 2, "b"), row("a", 2))
    stage.runs("a", "W").receives(reply(1, 2, "b"))
    assert stage.seen() == ["a", "b", "W"]
    assert "dropped a stale reply of w2 to round 1" in stage.told()


def test_a_reply_to_a_former_round_is_dropped() -> None:
    stage = leased("b").receives(program(1, "V", cut=((10, 1, 1),)), reply(1, 2, "b")).runs("V")
    stage.steering.elsewhere["c"] = 2
    stage.receives(row("c", 2), program(2, "W", cut=((10, 1, 2),)), reply(1, 2, "b")).is_in(BLOCKED)
    stage.receives(reply(2, 2, "c")).runs("W")
    assert stage.seen() == ["b", "V", "c", "W"]


def test_a_reply_by_a_worker_outside_the_round_breaks_a_rule() -> None:
    stage = leased("b").receives(program(1, "W", cut=((10, 1, 1),)))
    with pytest.raises(ProtocolError, match="w3 replied but takes no part in round 1") as caught:
        stage.receives(reply(1, 3, "x"))
    assert caught.value.rule == "lessees-are-frozen"
    stage.receives(reply(1, 2, "b")).runs("W")
    assert stage.seen() == ["b", "W"]


def test_each_lessee_gets_its_slice_of_the_payload_even_one_that_was_never_leased() -> None:
    cut = ((10, 1, 1), (10, 2, 5), (10, 3, 2), (12, 2, 1))
    stage = (
        leased("b", worker=4)
        .receives(program(1, "W", cut=cut))
        .sends(
            program_ack(1),
            sync_request(1, 2, cuts=((S, 10, 5), (S, 12, 1))),
            sync_request(1, 3, cuts=((S, 10, 2),)),
            sync_request(1, 4, forwards=1),
        )
    )
    stage.receives(reply(1, 2), reply(1, 3), reply(1, 4)).runs("W")
    stage.sends(critical_ack(1), unsync(1, 2), unsync(1, 3), unsync(1, 4))


def test_the_slices_of_barriers_that_share_a_round_are_put_together() -> None:
    stage = Stage().receives(program(1, "first")).starts("first")
    stage.receives(
        program(2, "V", cut=((10, 2, 3),)), program(1, "W", sender=T, cut=((11, 2, 4), (11, 3, 1)))
    ).forgets().ends()
    stage.sends(critical_ack(1), sync_request(2, 2, cuts=((S, 10, 3), (T, 11, 4))), sync_request(2, 3, cuts=((T, 11, 1),)))


def test_a_lessee_that_an_incomplete_sync_one_names_takes_part_only_in_the_round_of_that_barrier() -> None:
    stage = Stage().receives(program(1, "one", cut=((10, 2, 1),), one=1)).sends(program_ack(1))
    stage.receives(program(1, "W", sender=T)).runs("W").sends(program_ack(1, to=T), critical_ack(1, to=T))
    stage.receives(program(2, "one", sender=T, one=1)).sends(program_ack(2, to=T), sync_request(2, 2, cuts=((S, 10, 1),)))


def test_a_granted_lessee_takes_part_in_rounds_of_other_upstream_actors_too() -> None:
    stage = Stage().receives(registration(1, 2)).sends(grant(1, 2))
    stage.receives(program(1, "W", sender=T)).sends(program_ack(1, to=T), sync_request(1, 2))


def test_rounds_and_forwards_are_numbered_on() -> None:
    stage = leased("a").receives(program(1, "V", cut=((10, 1, 1),)), reply(1, 2)).runs("V").forgets()
    stage.steering.elsewhere["b"] = 2
    stage.receives(row("b", 2)).sends(forwarded("b", 2, 2))
    stage.receives(program(2, "W", cut=((10, 1, 2),))).sends(program_ack(2), sync_request(2, 2, forwards=2))


def test_a_dependency_that_arrives_after_the_request_runs_at_the_lessor() -> None:
    stage = leased("a").receives(program(1, "W", cut=((10, 1, 2),))).forgets()
    assert not stage.worker.may_forward(row("b", 2), 2)
    stage.receives(row("b", 2)).runs("b").sends_nothing().is_in(BLOCKED)


def test_a_lost_acknowledgment_of_the_request_stops_nothing() -> None:
    stage = leased("b").receives(program(1, "W", cut=((10, 1, 1),)), reply(1, 2, "b")).is_in(CRITICAL)
    assert lessor(stage).round.unacknowledged == {2}  # type: ignore[union-attr]


def test_the_acknowledgment_of_a_request_is_noted_for_this_round_only() -> None:
    stage = leased("b").receives(program(1, "W", cut=((10, 1, 1),)), request_ack(7, 2))
    assert lessor(stage).round.unacknowledged == {2}  # type: ignore[union-attr]
    stage.receives(request_ack(1, 2), request_ack(1, 2))
    assert lessor(stage).round.unacknowledged == set()  # type: ignore[union-attr]
    stage.receives(reply(1, 2)).runs("W").receives(request_ack(1, 2)).is_in(RUNNABLE)


# --- what lessees hand back ----------------------------------------------------------------------------------------------


def test_a_message_handed_back_runs_at_the_lessor_and_is_not_forwarded_again() -> None:
    stage = leased("a").receives(handed_back("a", 1, 2))
    assert not stage.worker.may_forward(handed_back("a", 1, 2), 3)
    stage.runs("a").sends_nothing()


def test_a_message_handed_back_twice_runs_once() -> None:
    leased("a").receives(handed_back("a", 1, 2), handed_back("a", 1, 2)).runs("a").is_idle()


def test_the_round_waits_for_the_message_handed_back_that_its_reply_overtook() -> None:
    stage = leased("a").receives(program(1, "W", cut=((10, 1, 1),))).is_in(BLOCKED)
    stage.receives(reply(1, 2, returned=1)).is_in(DRAINING).is_idle()
    stage.receives(handed_back("a", 1, 2)).is_in(DRAINING).runs("a", "W")


def test_what_is_handed_back_in_blocked_brings_the_lessor_back_to_draining() -> None:
    stage = leased("a").receives(program(1, "W", cut=((10, 1, 1),)), handed_back("a", 1, 2)).is_in(DRAINING)
    stage.runs("a").is_in(BLOCKED).receives(reply(1, 2, returned=1)).runs("W")
    assert stage.told().count("BLOCKED -> DRAINING: a lessee handed work back") == 1


def test_what_is_handed_back_out_of_order_is_waited_for() -> None:
    stage = leased("a", "b").receives(program(1, "W", cut=((10, 1, 2),)), handed_back("b", 2, 2)).runs("b").is_in(DRAINING)
    stage.receives(handed_back("a", 1, 2)).runs("a").is_in(BLOCKED).receives(reply(1, 2, returned=2)).runs("W")


def test_other_upstreams_go_on_while_the_lessor_drains_again() -> None:
    stage = leased("a").receives(program(1, "W", cut=((10, 1, 1),)), row("held", 1, sender=T)).is_idle()
    stage.receives(reply(1, 2, returned=1), row("free", 2, sender=T)).runs("free")
    stage.receives(handed_back("a", 1, 2)).runs("a", "W", "held")


def test_what_came_back_before_the_round_has_to_run_first() -> None:
    stage = leased("a").receives(handed_back("a", 1, 2), program(1, "W", cut=((10, 1, 1),))).is_in(DRAINING)
    stage.receives(reply(1, 2, returned=1)).runs("a", "W")


# --- the end of a round --------------------------------------------------------------------------------------------------


def test_what_was_held_is_released_in_the_order_of_arrival_and_may_be_forwarded_again() -> None:
    stage = leased("a").receives(program(1, "W", cut=((10, 1, 1),)), row("c", 3), row("t", 1, sender=T), row("b", 2))
    stage.receives(reply(1, 2)).forgets()
    stage.steering.elsewhere["t"] = 3
    stage.runs("W").sends(critical_ack(1), unsync(1, 2), forwarded("t", 1, 3, sender=T)).runs("c", "b")


def test_a_round_ends_only_when_its_own_programs_are_acknowledged() -> None:
    stage = Stage(says={"W": (critical(D, "d"), critical(E, "e"))})
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1), program(1, "W", cut=((10, 1, 1),)), reply(1, 2)).forgets()
    stage.runs("W").sends(program(1, "d", sender=A, to=D), program(1, "e", sender=A, to=E)).is_in(CRITICAL)
    stage.receives(program_ack(1, to=A, by=E)).is_in(CRITICAL).sends_nothing()
    stage.receives(program_ack(1, to=A, by=D)).is_in(RUNNABLE).sends(critical_ack(1), unsync(1, 2, closed=(D, E)))


def test_a_round_that_needs_two_programs_to_one_target_waits_for_both() -> None:
    stage = Stage(says={"W": (critical(D, "d"), out(D, "x"), critical(D, "f"))}).receives(program(1, "W")).forgets()
    stage.runs("W").sends(program(1, "d", sender=A, to=D))
    stage.receives(program_ack(1, to=A, by=D)).is_in(CRITICAL)
    stage.sends(row("x", 1, sender=A, to=D), program(2, "f", sender=A, to=D, cut=((1, 5, 1),)))
    stage.receives(program_ack(2, to=A, by=D)).is_in(RUNNABLE).sends(critical_ack(1))


def test_unsync_names_only_the_actors_that_got_a_program_in_this_round() -> None:
    stage = Stage(says={"V": (critical(D, "d"),)})
    stage.steering.elsewhere = {"a": 2, "b": 2}
    stage.receives(row("a", 1), program(1, "V", cut=((10, 1, 1),)), reply(1, 2)).runs("V")
    stage.receives(program_ack(1, to=A, by=D)).forgets()
    stage.receives(row("b", 2), program(2, "W", cut=((10, 1, 2),)), reply(2, 2)).forgets()
    stage.runs("W").sends(critical_ack(2), unsync(2, 2))


def test_outputs_of_a_critical_message_leave_in_order_around_its_own_barrier() -> None:
    stage = Stage(says={"W": (out(D, "before"), critical(D, "d"), out(D, "after"), out(E, "other"))})
    stage.receives(program(1, "W")).forgets().runs("W").sends(
        row("before", 1, sender=A, to=D),
        program(1, "d", sender=A, to=D, cut=((1, 5, 1),)),
        row("other", 1, sender=A, to=E),
    )
    stage.receives(program_ack(1, to=A, by=D)).sends(row("after", 2, sender=A, to=D), critical_ack(1))


def test_acknowledgments_are_sent_exactly_once_whatever_is_delivered_again() -> None:
    stage = leased("a").receives(program(1, "W", cut=((10, 1, 1),)), program(1, "W", cut=((10, 1, 1),)))
    stage.sends(program_ack(1), sync_request(1, 2, forwards=1))
    stage.receives(reply(1, 2, "a"), reply(1, 2, "a"), program(1, "W", cut=((10, 1, 1),))).sends_nothing()
    stage.runs("W").sends(critical_ack(1), unsync(1, 2))
    stage.receives(program(1, "W"), reply(1, 2, "a"), row("a", 1), request_ack(1, 2)).sends_nothing().is_idle()
    assert stage.seen() == ["a", "W"]


def test_a_slow_round_can_say_what_it_waits_for() -> None:
    stage = leased("a").receives(row("done", 1, origin=13)).runs("done").receives(row("t", 1, sender=T)).starts("t")
    assert waiting_for(lessor(stage)) == []
    stage.receives(program(1, "W", cut=((10, 1, 3), (12, 3, 1), (13, 1, 1)))).receives(request_ack(1, 3))
    assert waiting_for(lessor(stage)) == [
        "a running message at job/a/0@w1",
        "2 messages from job/s/0@w10",
        "job/a/0@w2, which has not acknowledged round 1",
        "job/a/0@w3, which has not answered round 1",
    ]


def test_a_round_that_waits_for_downstream_says_so() -> None:
    stage = Stage(says={"W": (critical(D, "d"),)}).receives(program(1, "W")).runs("W")
    assert waiting_for(lessor(stage)) == ["the acknowledgment of a program by job/d/0"]


def test_an_incomplete_sync_one_is_noticed_however_many_other_rounds_there_are() -> None:
    stage = Stage()
    stage.worker.now = 5.0
    stage.receives(program(1, "one", one=1)).forgets()
    for number in (1, 2):
        stage.worker.now = 10.0 * number
        stage.receives(program(number, "W", sender=T)).runs("W")
    assert stage.worker.waiting(longer_than_s=14.0) == [(A, 5.0, ["SYNC_ONE 1 of job/t/0"])]
    assert stage.worker.waiting(longer_than_s=15.0) == []
    stage.receives(program(3, "one", sender=T, one=1)).runs("one")
    assert stage.worker.waiting(longer_than_s=0.0) == []
