"""Who holds a lease, why and for how long: registrations, grants, bounds, scale-in, and the shared view."""

from dirigo.kernel import MailboxState
from dirigo.kernel.worker import Worker
from kernel.scenario import (
    A,
    S,
    Stage,
    T,
    critical,
    critical_ack,
    forwarded,
    grant,
    intent,
    new_view,
    program,
    program_ack,
    registration,
    reply,
    revoke,
    revoke_ack,
    row,
    sync_request,
    unsync,
    view_of,
)

RUNNABLE, DRAINING = MailboxState.RUNNABLE, MailboxState.DRAINING
BLOCKED, CRITICAL = MailboxState.BLOCKED, MailboxState.CRITICAL


def scales_in(worker: Worker) -> None:
    worker.scale_in(A)


# --- registrations -----------------------------------------------------------------------------------------------------


def test_a_registration_is_granted_at_once_and_makes_lessees() -> None:
    stage = Stage().receives(registration(1, 2, 3)).sends(grant(1, 2, 3))
    assert stage.worker.lessees(A) == {2, 3}


def test_a_registration_delivered_twice_is_answered_once() -> None:
    Stage().receives(registration(2, 2), registration(2, 2), registration(1, 3)).sends(grant(2, 2))


def test_instances_of_one_upstream_actor_register_each_for_itself() -> None:
    stage = Stage().receives(registration(1, 2), registration(1, 3, origin=12))
    stage.sends(grant(1, 2), grant(1, 3, worker=12))


def test_the_home_is_never_granted_as_a_lessee() -> None:
    Stage().receives(registration(1, 1, 2)).sends(grant(1, 2))


def test_no_more_lessees_are_granted_than_the_actor_may_have() -> None:
    stage = Stage(lessees_max=2).receives(registration(1, 2, 3, 4)).sends(grant(1, 2, 3))
    stage.receives(registration(1, 3, 4, sender=T)).sends(grant(1, 3, to=T))  # who is leased may be shared
    stage.receives(registration(2, 4)).sends(grant(2))


def test_no_more_lessees_are_made_by_forwards_than_the_actor_may_have() -> None:
    stage = Stage(lessees_max=1)
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1))
    assert stage.worker.may_forward(row("b", 2), 2)
    assert not stage.worker.may_forward(row("b", 2), 3)


def test_during_a_round_every_registration_waits_for_its_end() -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 1, 1),))).forgets()
    stage.receives(registration(1, 2, sender=T)).is_in(DRAINING).receives(row("a", 1)).runs("a").is_in(CRITICAL)
    stage.receives(registration(1, 3)).sends_nothing()
    stage.runs("W").sends(critical_ack(1), grant(1, 2, to=T), grant(1, 3))


def test_from_its_cut_to_the_end_of_its_round_an_upstream_actor_is_granted_nothing() -> None:
    stage = Stage().receives(program(1, "one", one=1)).is_in(RUNNABLE).forgets()
    stage.receives(registration(1, 2)).sends_nothing()
    stage.receives(registration(1, 2, sender=T)).sends(grant(1, 2, to=T))  # whose cut is not there yet
    stage.receives(program(1, "one", sender=T, one=1)).sends(program_ack(1, to=T), sync_request(1, 2))
    stage.receives(reply(1, 2)).runs("one").sends(critical_ack(1), critical_ack(1, to=T), unsync(1, 2), grant(1, 2))


def test_a_registration_stays_deferred_while_another_program_of_its_actor_waits() -> None:
    stage = Stage().receives(program(1, "V"), program(2, "W", cut=((10, 1, 1),)), registration(1, 2)).forgets()
    stage.runs("V").sends(critical_ack(1)).receives(row("a", 1)).runs("a", "W").sends(critical_ack(2), grant(1, 2))


def test_a_newer_registration_takes_the_place_of_a_deferred_one() -> None:
    stage = Stage().receives(program(1, "W")).forgets().receives(registration(1, 2), registration(3, 3))
    stage.runs("W").sends(critical_ack(1), grant(3, 3))


# --- how long a lease lasts ----------------------------------------------------------------------------------------------


def test_a_forward_lasts_until_the_next_round() -> None:
    stage = Stage()
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1))
    assert stage.worker.lessees(A) == {2}
    stage.receives(program(1, "W", sender=T), reply(1, 2)).forgets().runs("W")
    stage.sends(critical_ack(1, to=T), unsync(1, 2, lease_ended=True))
    assert stage.worker.lessees(A) == set()


def test_a_grant_lasts_until_the_round_of_the_grantees_own_barrier() -> None:
    stage = Stage().receives(registration(1, 2)).receives(program(1, "W", sender=T), reply(1, 2)).forgets().runs("W")
    stage.sends(critical_ack(1, to=T), unsync(1, 2, lease_ended=False))
    stage.receives(program(1, "V", cut=((10, 2, 3),))).sends(program_ack(1), sync_request(2, 2, cuts=((S, 10, 3),)))
    stage.receives(reply(2, 2)).runs("V").sends(critical_ack(1), unsync(2, 2, lease_ended=True))
    assert stage.worker.lessees(A) == set()


def test_a_lease_that_another_upstream_actor_was_granted_too_is_kept() -> None:
    stage = Stage().receives(registration(1, 2, 3), registration(1, 2, sender=T)).forgets()
    stage.receives(program(1, "W"), reply(1, 2), reply(1, 3)).forgets().runs("W")
    stage.sends(critical_ack(1), unsync(1, 2, lease_ended=False), unsync(1, 3, lease_ended=True))
    assert stage.worker.lessees(A) == {2}


def test_a_barrier_ends_the_grants_of_all_instances_of_its_actor() -> None:
    stage = Stage().receives(registration(1, 2), registration(1, 3, origin=12)).receives(program(1, "W"))
    stage.receives(reply(1, 2), reply(1, 3)).runs("W")
    assert stage.worker.lessees(A) == set()


def test_a_self_barrier_ends_no_grant() -> None:
    stage = (
        Stage().receives(registration(1, 2)).receives(intent(1, 2, critical(A, "alone"))).receives(reply(1, 2, returned=1))
    )
    stage.forgets().runs("alone").sends(unsync(1, 2, lease_ended=False))


def test_an_empty_grant_keeps_no_lease() -> None:
    stage = Stage(lessees_max=0).receives(registration(1, 2)).sends(grant(1))
    assert stage.worker.lessees(A) == set()


# --- scale-in ----------------------------------------------------------------------------------------------------------


def test_scale_in_of_forwards_alone_is_a_round_without_critical_messages() -> None:
    stage = Stage()
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1)).forgets().asks(scales_in).sends(sync_request(1, 2, forwards=1)).is_in(BLOCKED)
    stage.receives(reply(1, 2, "a")).sends(unsync(1, 2)).is_in(RUNNABLE)
    assert stage.seen() == ["a"]
    assert stage.worker.lessees(A) == set()


def test_scale_in_without_lessees_does_nothing() -> None:
    stage = Stage().asks(scales_in).sends_nothing().is_in(RUNNABLE)
    assert stage.worker.lessor(A).last_round == 0


def test_scale_in_takes_grants_back_first_and_cuts_at_the_ids_it_is_told() -> None:
    stage = Stage().receives(registration(1, 2, 3, sender=T), registration(1, 2)).forgets()
    stage.asks(scales_in).sends(revoke(1), revoke(1, to=T)).is_in(RUNNABLE)
    stage.receives(revoke_ack(1, (2, 4))).sends_nothing().is_in(RUNNABLE)
    stage.receives(revoke_ack(1, (2, 1), (3, 2), sender=T))
    stage.sends(sync_request(1, 2, cuts=((S, 10, 4), (T, 11, 1))), sync_request(1, 3, cuts=((T, 11, 2),)))
    stage.receives(reply(1, 2, "x"), reply(1, 3, "y")).sends(unsync(1, 2), unsync(1, 3))
    assert stage.worker.lessees(A) == set()
    assert stage.seen() == ["x", "y"]


def test_while_it_scales_in_the_lessor_runs_on_but_grants_nothing() -> None:
    stage = Stage().receives(registration(1, 2)).asks(scales_in).forgets()
    stage.receives(row("a", 1), registration(1, 3, sender=T), registration(3, 2)).runs("a").sends_nothing()
    stage.receives(revoke_ack(1)).sends(sync_request(1, 2)).receives(reply(1, 2))
    stage.sends(unsync(1, 2), grant(1, 3, to=T), grant(3, 2))


def test_a_second_request_to_scale_in_changes_nothing_while_the_first_is_under_way() -> None:
    Stage().receives(registration(1, 2)).forgets().asks(scales_in).asks(scales_in).sends(revoke(1))


def test_an_acknowledgment_that_nobody_waits_for_is_dropped() -> None:
    stage = Stage().receives(revoke_ack(0), registration(1, 2), registration(1, 3, sender=T)).asks(scales_in).forgets()
    stage.receives(revoke_ack(2), revoke_ack(1), revoke_ack(1, (2, 9))).sends_nothing().is_in(RUNNABLE)
    stage.receives(revoke_ack(1, sender=T)).sends(sync_request(1, 2), sync_request(1, 3))


def test_a_second_scale_in_has_a_number_of_its_own() -> None:
    stage = Stage().receives(registration(1, 2)).asks(scales_in).receives(revoke_ack(1), reply(1, 2))
    stage.receives(registration(2, 2)).forgets().asks(scales_in).sends(revoke(2))
    stage.receives(revoke_ack(1)).sends_nothing().receives(revoke_ack(2)).sends(sync_request(2, 2))


def test_an_upstream_whose_barrier_ended_its_grants_has_still_to_acknowledge() -> None:
    stage = Stage().receives(registration(1, 2)).asks(scales_in).receives(program(1, "W", cut=((10, 2, 1),))).forgets()
    stage.receives(reply(1, 2)).runs("W").sends(critical_ack(1), unsync(1, 2)).is_in(RUNNABLE)
    stage.receives(revoke_ack(1, (2, 1))).sends_nothing().is_in(RUNNABLE)  # nobody is left to be asked
    stage.receives(registration(2, 2)).sends(grant(2, 2))


def test_a_barrier_that_is_ready_when_the_scale_in_starts_shares_its_round() -> None:
    stage = Stage().receives(registration(1, 2, sender=T), program(1, "first")).asks(scales_in).forgets()
    stage.receives(reply(1, 2)).starts("first").receives(program(2, "W"), revoke_ack(1, (2, 5), sender=T)).forgets().ends()
    stage.sends(critical_ack(1), unsync(1, 2, lease_ended=False), sync_request(2, 2, cuts=((T, 11, 5),)))
    stage.receives(reply(2, 2)).runs("W").sends(critical_ack(2), unsync(2, 2, lease_ended=True))


# --- the shared view -----------------------------------------------------------------------------------------------------


def test_without_replicated_states_there_are_no_views() -> None:
    stage = Stage()
    stage.steering.elsewhere["b"] = 2
    stage.receives(program(1, "W")).runs("W").forgets().receives(row("b", 1)).sends(forwarded("b", 1, 2, view=0))


def test_before_the_first_round_there_is_no_view() -> None:
    stage = Stage(shares=True)
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1)).sends(forwarded("a", 1, 2, view=0))


def test_unsync_brings_the_view_of_its_round_to_all_who_took_part() -> None:
    stage = Stage(shares=True)
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1), program(1, "W", cut=((10, 1, 1),)), reply(1, 2, "a")).forgets().runs("W")
    stage.sends(critical_ack(1), unsync(1, 2, version=1, view=view_of("a", "W")))
    # Who took part knows it already.
    stage.steering.elsewhere["b"] = 2
    stage.receives(row("b", 2)).sends(forwarded("b", 2, 2, view=1))


def test_a_new_lessee_gets_the_view_once_before_its_first_message() -> None:
    stage = Stage(shares=True).receives(program(1, "W")).runs("W").forgets()
    stage.steering.elsewhere = {"a": 3, "b": 3}
    stage.receives(row("a", 1), row("b", 2))
    stage.sends(new_view(1, 3, "W"), forwarded("a", 1, 3, view=1), forwarded("b", 2, 3, view=1))


def test_a_grant_names_the_view_that_its_lessees_are_being_sent() -> None:
    stage = Stage(shares=True).receives(program(1, "V")).runs("V").receives(program(2, "W")).runs("W").forgets()
    stage.receives(registration(1, 2, 3))
    stage.sends(new_view(2, 2, "V", "W"), new_view(2, 3, "V", "W"), grant(1, 2, 3, view=2))


def test_a_lessee_that_missed_a_round_gets_the_newer_view() -> None:
    stage = Stage(shares=True)
    stage.steering.elsewhere["a"] = 2
    stage.receives(row("a", 1), program(1, "V", cut=((10, 1, 1),)), reply(1, 2)).runs("V")
    stage.receives(program(2, "W")).runs("W").forgets()  # w2's lease has ended: it takes no part
    stage.steering.elsewhere["b"] = 2
    stage.receives(row("b", 2)).sends(new_view(2, 2, "V", "W"), forwarded("b", 2, 2, view=2))
