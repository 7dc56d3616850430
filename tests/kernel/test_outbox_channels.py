"""Where outputs go: ids per channel, asking for channels to lessees, grants, and giving channels up."""

import pytest

from dirigo.kernel import ProtocolError
from kernel.scenario import (
    AT,
    A,
    B,
    D,
    E,
    S,
    Stage,
    critical,
    grant,
    out,
    program,
    program_ack,
    registration,
    revoke,
    revoke_ack,
    row,
)


def source_stage(**direct: int) -> Stage:
    """A source whose strategy wants these words at these workers."""
    stage = Stage(AT[S])
    stage.source()
    stage.steering.direct = direct
    return stage


def test_ids_count_from_one_on_each_channel() -> None:
    stage = source_stage().emits(out(A, "x"), out(B, "y"), out(A, "z"))
    stage.sends(row("x", 1), row("y", 1, to=B), row("z", 2))


def test_a_lessee_and_its_lessor_are_different_channels() -> None:
    stage = source_stage(x=2, z=2).emits(out(A, "x")).receives(grant(1, 2)).emits(out(A, "y"), out(A, "z"))
    stage.sends(registration(1, 2), row("x", 1, worker=2), row("y", 1), row("z", 2, worker=2))


def test_an_output_to_a_stranger_breaks_a_rule() -> None:
    with pytest.raises(ProtocolError, match="sends to job/d/0, which is not among its downstream actors") as caught:
        source_stage().emits(out(D, "x"))
    assert caught.value.rule == "send-along-edges"
    assert caught.value.who == "job/s/0@w10"


def test_the_home_worker_needs_no_registration() -> None:
    source_stage(x=AT[A]).emits(out(A, "x")).sends(row("x", 1))


# --- registration and grant --------------------------------------------------------------------------------------------


def test_outputs_wait_for_the_grant_and_leave_in_order() -> None:
    stage = source_stage(x=2, y=2).emits(out(A, "x")).sends(registration(1, 2))
    stage.emits(out(A, "y"), out(A, "z")).sends(row("z", 1))
    stage.receives(grant(1, 2, view=7)).sends(row("x", 1, worker=2, view=7), row("y", 2, worker=2, view=7))
    assert stage.worker.open_channels(S, A) == {2}


def test_what_is_sent_to_the_lessor_asks_for_no_view() -> None:
    stage = source_stage(x=2).emits(out(A, "x")).receives(grant(1, 2, view=7)).forgets()
    stage.emits(out(A, "home"), out(A, "x")).sends(row("home", 1), row("x", 2, worker=2, view=7))


def test_one_registration_at_a_time_then_the_workers_that_were_wanted_meanwhile() -> None:
    stage = source_stage(x=2, y=3, z=4).emits(out(A, "x"), out(A, "y"), out(A, "z")).sends(registration(1, 2))
    stage.receives(grant(1, 2)).sends(row("x", 1, worker=2), registration(2, 3, 4))
    stage.receives(grant(2, 3, 4)).sends(row("y", 1, worker=3), row("z", 1, worker=4))


def test_a_registration_asks_for_all_that_the_strategy_will_want_as_well() -> None:
    stage = source_stage(x=2, y=3, z=4)
    stage.steering.also = (2, 3, AT[A])  # the home needs no permission
    stage.emits(out(A, "x")).sends(registration(1, 2, 3)).receives(grant(1, 2, 3)).sends(row("x", 1, worker=2))
    stage.emits(out(A, "y")).sends(row("y", 1, worker=3))
    stage.emits(out(A, "z")).sends(registration(2, 4))  # and not for those that it has


def test_registrations_at_two_actors_do_not_wait_for_each_other() -> None:
    stage = source_stage(x=2, y=2).emits(out(A, "x"), out(B, "y"))
    stage.sends(registration(1, 2), registration(1, 2, to=B))
    stage.receives(grant(1, 2, by=B)).sends(row("y", 1, to=B, worker=2))


def test_an_empty_grant_sends_what_waited_to_the_lessor() -> None:
    stage = source_stage(x=2).emits(out(A, "x"), out(A, "x")).forgets().receives(grant(1)).sends(row("x", 1), row("x", 2))
    assert stage.worker.open_channels(S, A) == set()


def test_after_an_empty_grant_the_next_output_asks_again() -> None:
    source_stage(x=2).emits(out(A, "x")).receives(grant(1)).forgets().emits(out(A, "x")).sends(registration(2, 2))


def test_a_grant_for_some_sends_the_others_to_the_lessor() -> None:
    stage = (
        source_stage(x=2, y=3, z=4).emits(out(A, "x"), out(A, "y"), out(A, "z"), out(A, "y")).receives(grant(1)).forgets()
    )
    stage.receives(grant(2, 4)).sends(row("y", 2), row("z", 1, worker=4), row("y", 3))


def test_a_grant_delivered_twice_is_dropped() -> None:
    stage = source_stage(x=2).emits(out(A, "x")).receives(grant(1, 2)).forgets().receives(grant(1, 2, 3)).sends_nothing()
    assert stage.worker.open_channels(S, A) == {2}


def test_a_grant_that_comes_after_a_barrier_left_is_dropped() -> None:
    stage = source_stage(x=2).emits(out(A, "x"), critical(A, "W"))
    stage.sends(registration(1, 2), row("x", 1), program(1, "W", cut=((10, 1, 1),)))
    stage.receives(grant(1, 2), program_ack(1)).sends_nothing()
    assert stage.worker.open_channels(S, A) == set()
    stage.emits(out(A, "x")).sends(registration(3, 2)).receives(grant(1, 2), grant(2, 2)).sends_nothing()
    stage.receives(grant(3, 2)).sends(row("x", 1, worker=2))


# --- waiting outputs leave before a barrier, and before a round ----------------------------------------------------------


def test_what_waits_leaves_before_the_program_and_is_in_its_cut() -> None:
    stage = source_stage(x=2, y=2).emits(out(A, "home"), out(A, "x"), out(A, "y")).forgets()
    stage.emits(critical(A, "W")).sends(row("x", 2), row("y", 3), program(1, "W", cut=((10, 1, 3),)))


def test_a_barrier_to_one_actor_leaves_what_waits_for_another() -> None:
    stage = source_stage(y=2).emits(out(B, "y")).forgets().emits(critical(A, "W")).sends(program(1, "W"))
    stage.receives(grant(1, 2, by=B)).sends(row("y", 1, to=B, worker=2))


def test_what_waits_at_a_lessor_leaves_when_its_round_starts() -> None:
    stage = Stage(says={"a": (out(D, "x"),), "b": (out(E, "y"), out(D, "z"))})
    stage.steering.direct = {"x": 2, "y": 3, "z": 2}
    stage.receives(row("a", 1)).runs("a").sends(registration(1, 2, sender=A, to=D))
    stage.receives(program(1, "W", cut=((10, 1, 2),)))
    stage.sends(program_ack(1), row("x", 1, sender=A, to=D))
    # In a round nothing may wait: whatever is not open yet goes to the lessor.
    stage.receives(row("b", 2)).runs("b").sends(row("y", 1, sender=A, to=E), row("z", 2, sender=A, to=D))


def test_an_open_channel_may_be_used_while_the_lessor_drains() -> None:
    stage = Stage(says={"a": (out(D, "x"),)})
    stage.steering.direct = {"x": 2}
    stage.receives(row("a", 1)).runs("a").receives(grant(1, 2, to=A, by=D)).forgets()
    stage.receives(program(1, "W", cut=((10, 1, 2),)), row("a", 2)).forgets()
    stage.runs("a").sends(row("x", 2, sender=A, to=D, worker=2))


# --- revoke --------------------------------------------------------------------------------------------------------------


def test_a_revoked_sender_stops_and_tells_the_last_ids_to_lessees() -> None:
    stage = source_stage(x=2, y=3, z=4).emits(out(A, "home"), out(A, "x")).receives(grant(1, 2)).emits(out(A, "y"))
    stage.receives(grant(2, 3)).emits(out(A, "x"), out(A, "z")).forgets()
    stage.receives(revoke(1)).sends(row("z", 2), revoke_ack(1, (2, 2), (3, 1), closed=4))
    assert stage.worker.open_channels(S, A) == set()
    stage.receives(grant(3, 4)).sends_nothing()
    stage.emits(out(A, "x")).sends(registration(5, 2))


def test_a_sender_without_grants_acknowledges_a_revocation_with_nothing() -> None:
    source_stage().receives(revoke(1)).sends(revoke_ack(1, closed=1))


def test_a_revocation_delivered_twice_closes_nothing_that_was_granted_since() -> None:
    stage = source_stage(x=2, y=2, z=2).emits(out(A, "x")).receives(grant(1, 2)).forgets()
    stage.receives(revoke(1)).sends(revoke_ack(1, (2, 1), closed=2))
    stage.emits(out(A, "y")).receives(grant(3, 2)).forgets().receives(revoke(1)).sends_nothing()
    stage.emits(out(A, "z")).sends(row("z", 3, worker=2))


def test_ids_that_a_barrier_has_named_are_told_again() -> None:
    stage = source_stage(x=2).emits(out(A, "x")).receives(grant(1, 2)).emits(critical(A, "W")).forgets()
    stage.receives(revoke(1)).sends(revoke_ack(1, (2, 1), closed=3))


def test_a_revocation_by_one_actor_leaves_the_channels_to_another() -> None:
    stage = source_stage(x=2, y=2).emits(out(A, "x"), out(B, "y")).receives(grant(1, 2), grant(1, 2, by=B)).forgets()
    stage.receives(revoke(1)).sends(revoke_ack(1, (2, 1), closed=2))
    stage.emits(out(B, "y")).sends(row("y", 2, to=B, worker=2))
