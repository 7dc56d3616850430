"""A lessee: it finishes what precedes the barrier, hands its partial state over, waits, and goes on."""

import msgspec
import pytest

from dirigo.kernel import MailboxState, ProtocolError
from dirigo.state import StateSet
from kernel.scenario import (
    A,
    D,
    E,
    S,
    Stage,
    T,
    critical,
    forwarded,
    grant,
    handed_back,
    intent,
    new_view,
    out,
    registration,
    reply,
    request_ack,
    row,
    sync_request,
    unsync,
    view_of,
)

RUNNABLE, DRAINING, BLOCKED = MailboxState.RUNNABLE, MailboxState.DRAINING, MailboxState.BLOCKED


# --- a round -----------------------------------------------------------------------------------------------------------


def test_a_lessee_that_never_had_a_message_replies_at_once() -> None:
    Stage(2).receives(sync_request(1, 2)).sends(request_ack(1, 2), reply(1, 2)).is_in(BLOCKED)


def test_a_lessee_replies_with_what_it_has_and_starts_again_from_nothing() -> None:
    stage = Stage(2).receives(forwarded("a", 1, 2)).runs("a").receives(sync_request(1, 2, forwards=1))
    stage.sends(request_ack(1, 2), reply(1, 2, "a"))
    assert stage.seen() == []
    stage.receives(unsync(1, 2), forwarded("b", 2, 2)).runs("b").receives(sync_request(2, 2, forwards=2))
    stage.sends(request_ack(2, 2), reply(2, 2, "b"))


def test_a_request_that_comes_before_the_forwards_it_names_waits_for_them() -> None:
    stage = Stage(2).receives(sync_request(1, 2, forwards=2)).sends(request_ack(1, 2)).is_in(DRAINING)
    stage.receives(forwarded("b", 2, 2)).runs("b").sends_nothing()
    stage.receives(forwarded("a", 1, 2)).runs("a").sends(reply(1, 2, "b", "a"))


def test_a_request_that_comes_before_the_direct_messages_it_names_waits_for_each_channel() -> None:
    stage = Stage(2).receives(sync_request(1, 2, cuts=((S, 10, 1), (S, 12, 1), (T, 11, 2)))).forgets()
    stage.receives(row("s", 1, worker=2), row("t", 1, sender=T, worker=2)).runs("s", "t").sends_nothing()
    stage.receives(row("v", 2, sender=T, worker=2)).runs("v").sends_nothing()
    stage.receives(row("u", 1, origin=12, worker=2)).runs("u").sends(reply(1, 2, "s", "t", "v", "u"))


def test_a_duplicate_does_not_stand_in_for_a_missing_message() -> None:
    stage = Stage(2).receives(forwarded("a", 1, 2), forwarded("a", 1, 2), sync_request(1, 2, forwards=2)).runs("a").is_idle()
    stage.forgets().receives(forwarded("b", 2, 2)).runs("b").sends(reply(1, 2, "a", "b"))


def test_a_lessee_replies_only_when_nothing_is_running() -> None:
    stage = Stage(2).receives(row("t", 1, sender=T, worker=2)).starts("t").receives(sync_request(1, 2))
    stage.sends(request_ack(1, 2)).is_in(DRAINING).ends().sends(reply(1, 2, "t"))


def test_a_blocked_lessee_holds_everything_until_unsync_and_releases_it_in_order() -> None:
    stage = Stage(2).receives(sync_request(1, 2)).receives(row("t", 1, sender=T, worker=2), forwarded("a", 1, 2)).is_idle()
    stage.receives(unsync(1, 2)).is_in(RUNNABLE).runs("t", "a")


def test_what_the_strategy_kept_when_the_lessee_blocks_is_held_too() -> None:
    stage = Stage(2).receives(row("t", 1, sender=T, worker=2), sync_request(1, 2)).is_in(BLOCKED).is_idle()
    stage.receives(unsync(1, 2)).runs("t")


def test_a_request_delivered_twice_is_acknowledged_and_answered_once() -> None:
    stage = Stage(2).receives(sync_request(1, 2), sync_request(1, 2)).sends(request_ack(1, 2), reply(1, 2))
    stage.receives(unsync(1, 2), sync_request(1, 2)).sends_nothing().is_in(RUNNABLE)
    assert "dropped a stale request of round 1" in stage.told()


def test_a_lessee_may_skip_rounds_that_it_took_no_part_in() -> None:
    Stage(2).receives(sync_request(4, 2)).sends(request_ack(4, 2), reply(4, 2))


# --- UNSYNC that is early, late or doubled -------------------------------------------------------------------------------


def test_a_request_that_overtakes_the_unsync_before_it_is_held() -> None:
    stage = Stage(2).receives(sync_request(1, 2)).forgets()
    stage.receives(sync_request(2, 2, forwards=1)).sends(request_ack(2, 2)).is_in(BLOCKED)
    stage.receives(sync_request(2, 2, forwards=1)).sends_nothing()
    stage.receives(forwarded("a", 1, 2)).is_idle()
    stage.receives(unsync(1, 2)).is_in(DRAINING).sends_nothing().runs("a").sends(reply(2, 2, "a")).is_in(BLOCKED)


def test_a_held_request_that_is_already_fulfilled_is_answered_at_unsync() -> None:
    stage = Stage(2).receives(sync_request(1, 2), sync_request(2, 2)).forgets()
    stage.receives(unsync(1, 2)).sends(reply(2, 2)).receives(unsync(2, 2)).is_in(RUNNABLE)


def test_a_stale_unsync_ends_nothing() -> None:
    stage = Stage(2).receives(sync_request(1, 2), unsync(1, 2), unsync(1, 2)).is_in(RUNNABLE)
    stage.receives(sync_request(2, 2, forwards=1), unsync(1, 2), unsync(2, 2)).is_in(DRAINING)
    stage.receives(forwarded("a", 1, 2)).runs("a").is_in(BLOCKED).receives(unsync(1, 2)).is_in(BLOCKED)
    assert stage.told().count("dropped a stale UNSYNC of round 1") == 3
    stage.receives(unsync(2, 2)).is_in(RUNNABLE)


def test_a_request_of_the_next_round_before_the_reply_breaks_a_rule() -> None:
    stage = Stage(2).receives(sync_request(1, 2, forwards=1))
    with pytest.raises(ProtocolError, match="round 2 was requested in round 1") as caught:
        stage.receives(sync_request(2, 2))
    assert caught.value.rule == "one-round-at-a-time"
    stage.is_in(DRAINING)


# --- back to the lessor --------------------------------------------------------------------------------------------------


def test_a_message_handed_back_gets_an_id_of_its_own_and_counts_as_done() -> None:
    stage = Stage(2)
    stage.steering.elsewhere = {"a": 1, "t": 1}
    stage.receives(forwarded("a", 1, 2), row("t", 1, sender=T, worker=2))
    stage.sends(handed_back("a", 1, 2), handed_back("t", 2, 2, sender=T)).is_idle()
    stage.receives(sync_request(1, 2, forwards=1, cuts=((T, 11, 1),))).sends(request_ack(1, 2), reply(1, 2, returned=2))


def test_handing_back_the_last_dependency_ends_the_draining() -> None:
    stage = Stage(2)
    stage.steering.elsewhere["a"] = 1
    stage.receives(sync_request(1, 2, forwards=1)).forgets().receives(forwarded("a", 1, 2))
    stage.sends(handed_back("a", 1, 2), reply(1, 2, returned=1)).is_in(BLOCKED)


def test_the_time_of_a_message_travels_back_with_it() -> None:
    stage = Stage(2)
    stage.steering.elsewhere["a"] = 1
    stage.receives(msgspec.structs.replace(forwarded("a", 1, 2), created=3.0, deadline=9.0))
    (sent,) = stage.worker.outgoing
    assert (sent.created, sent.deadline) == (3.0, 9.0)  # type: ignore[union-attr]


def test_a_critical_message_and_all_that_follows_it_is_handed_to_the_lessor() -> None:
    outputs = (critical(D, "W"), out(D, "y"), out(E, "z"))
    stage = Stage(2, says={"a": (out(D, "x"), *outputs)}).receives(forwarded("a", 1, 2)).runs("a")
    stage.sends(row("x", 1, sender=A, origin=2, to=D), intent(1, 2, *outputs)).is_in(RUNNABLE)
    stage.receives(sync_request(1, 2, forwards=1))
    stage.sends(request_ack(1, 2), reply(1, 2, "a", sent=((D, 5, 1),), returned=1))


def test_a_self_barrier_of_a_lessee_is_handed_to_the_lessor_too() -> None:
    stage = Stage(2, says={"a": (critical(A, "alone"),)}).receives(forwarded("a", 1, 2)).runs("a")
    stage.sends(intent(1, 2, critical(A, "alone"))).is_idle()


def test_later_outputs_of_a_lessee_go_to_its_lessor_until_the_barrier_is_over() -> None:
    stage = Stage(2, says={"a": (critical(D, "W"),), "b": (out(D, "y"),), "c": (out(D, "z"),)})
    stage.receives(forwarded("a", 1, 2), forwarded("b", 2, 2), forwarded("c", 3, 2)).runs("a", "b")
    stage.sends(intent(1, 2, critical(D, "W")), intent(2, 2, out(D, "y")))
    stage.receives(sync_request(1, 2, forwards=2)).forgets().receives(unsync(1, 2, closed=(D,))).runs("c")
    stage.sends(row("z", 1, sender=A, origin=2, to=D))


def test_the_reply_follows_the_intent_of_the_last_dependency() -> None:
    stage = (
        Stage(2, says={"a": (critical(D, "W"),)}).receives(sync_request(1, 2, forwards=1), forwarded("a", 1, 2)).forgets()
    )
    stage.runs("a").sends(intent(1, 2, critical(D, "W")), reply(1, 2, "a", returned=1))


# --- what a lessee sends downstream --------------------------------------------------------------------------------------


def test_a_reply_names_the_last_ids_that_were_not_told_before() -> None:
    stage = Stage(2, says={"a": (out(E, "e"), out(D, "d"), out(D, "f")), "b": (out(D, "d"),)})
    stage.receives(forwarded("a", 1, 2)).runs("a").forgets().receives(sync_request(1, 2, forwards=1))
    stage.sends(request_ack(1, 2), reply(1, 2, "a", sent=((D, 5, 2), (E, 6, 1))))
    stage.receives(unsync(1, 2), forwarded("b", 2, 2)).runs("b").forgets().receives(sync_request(2, 2, forwards=2))
    stage.sends(request_ack(2, 2), reply(2, 2, "b", sent=((D, 5, 3),)))


def test_what_waits_for_a_grant_leaves_before_the_reply() -> None:
    stage = Stage(2, says={"a": (out(D, "x"),)})
    stage.steering.direct["x"] = 3
    stage.receives(forwarded("a", 1, 2)).runs("a").sends(registration(1, 3, sender=A, origin=2, to=D))
    stage.receives(sync_request(1, 2, forwards=1))
    stage.sends(request_ack(1, 2), row("x", 1, sender=A, origin=2, to=D), reply(1, 2, "a", sent=((D, 5, 1),)))


def open_to_d_and_e() -> Stage:
    """A lessee of A with open channels to lessees of D and of E at w3, in a round of its own."""
    stage = Stage(2, says={word: (out(D, "d"), out(E, "e")) for word in "abc"})
    stage.steering.direct = {"d": 3, "e": 3}
    stage.receives(forwarded("a", 1, 2)).runs("a")
    stage.receives(grant(1, 3, to=A, worker=2, by=D), grant(1, 3, to=A, worker=2, by=E))
    stage.receives(forwarded("b", 2, 2)).forgets().runs("b")
    stage.sends(row("d", 2, sender=A, origin=2, to=D, worker=3), row("e", 2, sender=A, origin=2, to=E, worker=3))
    return stage.receives(sync_request(1, 2, forwards=2)).forgets()


def test_unsync_closes_the_channels_to_the_actors_that_got_a_barrier() -> None:
    stage = open_to_d_and_e().receives(unsync(1, 2, closed=(D,), lease_ended=False), forwarded("c", 3, 2)).runs("c")
    stage.sends(registration(3, 3, sender=A, origin=2, to=D), row("e", 3, sender=A, origin=2, to=E, worker=3))


def test_the_end_of_a_lease_closes_all_channels() -> None:
    stage = open_to_d_and_e().receives(unsync(1, 2, lease_ended=True), forwarded("c", 3, 2)).runs("c")
    stage.sends(registration(3, 3, sender=A, origin=2, to=D), registration(3, 3, sender=A, origin=2, to=E))


def test_the_end_of_a_lease_makes_grants_under_way_void() -> None:
    stage = Stage(2, says={"a": (out(D, "d"),)})
    stage.steering.direct["d"] = 3
    stage.receives(forwarded("a", 1, 2)).runs("a").receives(sync_request(1, 2, forwards=1), unsync(1, 2)).forgets()
    stage.receives(grant(1, 3, to=A, worker=2, by=D)).sends_nothing()
    assert stage.worker.open_channels(A, D) == set()


# --- the shared view -----------------------------------------------------------------------------------------------------


def test_a_message_that_needs_a_newer_view_waits_for_it() -> None:
    stage = Stage(2, shares=True).receives(forwarded("a", 1, 2, view=3), forwarded("b", 2, 2)).runs("b").is_idle()
    stage.receives(new_view(2, 2, "old")).is_idle().receives(new_view(3, 2, "new")).runs("a")


def test_a_lessee_reads_the_view_that_it_was_sent_and_keeps_the_newest() -> None:
    stage = Stage(2, shares=True).receives(new_view(3, 2, "new"), new_view(2, 2, "old"), forwarded("a", 1, 2)).runs("a")
    states = stage.instance().states
    assert isinstance(states, StateSet)
    assert states.cell("seen").read() == ["new", "a"]
    stage.receives(sync_request(5, 2, forwards=1)).sends(request_ack(5, 2), reply(5, 2, "a"))  # the base stays here


def test_an_unsync_brings_the_view_too() -> None:
    stage = Stage(2, shares=True).receives(sync_request(1, 2), row("early", 1, worker=2, view=1)).is_idle()
    stage.receives(unsync(1, 2, version=1, view=view_of("W"))).runs("early")


def test_an_early_message_is_waited_for_like_any_other() -> None:
    stage = Stage(2, shares=True).receives(sync_request(2, 2, cuts=((S, 10, 1),)), row("early", 1, worker=2, view=1))
    stage.sends(request_ack(2, 2)).is_idle().receives(new_view(1, 2)).runs("early").sends(reply(2, 2, "early"))


def test_a_view_that_comes_while_the_lessee_is_blocked_releases_into_the_held_messages() -> None:
    stage = Stage(2, shares=True).receives(row("early", 1, sender=T, worker=2, view=1), sync_request(2, 2)).is_in(BLOCKED)
    stage.receives(new_view(1, 2)).is_idle().receives(unsync(2, 2)).runs("early")


def test_an_early_message_delivered_twice_runs_once() -> None:
    stage = Stage(2, shares=True).receives(forwarded("a", 1, 2, view=1), forwarded("a", 1, 2, view=1), new_view(1, 2))
    stage.runs("a").is_idle()
