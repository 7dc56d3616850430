"""What precedes a barrier and what follows it is decided by the ids in its program, channel by channel."""

from itertools import permutations

import pytest

from dirigo.kernel import MailboxState
from kernel.scenario import Stage, T, critical_ack, program, program_ack, row

DRAINING, RUNNABLE = MailboxState.DRAINING, MailboxState.RUNNABLE


def test_the_id_that_the_payload_names_is_still_a_dependency() -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 1, 2),)), row("a", 1), row("b", 2), row("c", 3))
    stage.runs("a", "b", "W", "c")


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_ids_decide_and_not_the_order_of_arrival(order: tuple[int, ...]) -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 1, 2),)))
    stage.receives(*(row(f"{seq}", seq) for seq in order))
    stage.runs(*(f"{seq}" for seq in order if seq <= 2), "W", "3")


def test_a_dependency_that_ran_before_the_program_came_is_counted() -> None:
    Stage().receives(row("a", 1)).runs("a").receives(program(1, "W", cut=((10, 1, 1),))).runs("W").is_idle()


def test_a_duplicate_does_not_stand_in_for_a_missing_dependency() -> None:
    stage = Stage().receives(row("a", 1), row("a", 1)).runs("a")
    stage.receives(program(1, "W", cut=((10, 1, 2),)), row("a", 1)).is_idle().is_in(DRAINING)
    stage.receives(row("b", 2)).runs("b", "W")


def test_each_instance_of_the_upstream_actor_has_a_cut_of_its_own() -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 1, 1), (12, 1, 2))))
    stage.receives(row("a2", 2), row("b3", 3, origin=12), row("b2", 2, origin=12), row("a1", 1))
    stage.runs("b2", "a1").is_idle()
    stage.receives(row("b1", 1, origin=12)).runs("b1", "W", "a2", "b3")


def test_a_message_between_two_programs_runs_between_their_critical_messages() -> None:
    stage = Stage().receives(program(1, "V", cut=((10, 1, 1),)), program(2, "W", cut=((10, 1, 2),)))
    stage.sends(program_ack(1), program_ack(2))
    stage.receives(row("c", 3), row("b", 2)).is_idle()
    stage.receives(row("a", 1)).runs("a", "V").sends(critical_ack(1))
    stage.runs("b", "W").sends(critical_ack(2))
    stage.runs("c").sends_nothing()


def test_a_message_between_two_programs_that_comes_last_still_runs_between_them() -> None:
    stage = Stage().receives(program(1, "V"), program(2, "W", cut=((10, 1, 1),)))
    stage.runs("V").sends(program_ack(1), program_ack(2), critical_ack(1)).is_in(DRAINING).is_idle()
    stage.receives(row("a", 1)).runs("a", "W").sends(critical_ack(2))


def test_a_channel_that_no_payload_ever_named_has_no_dependencies() -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 1, 1),)), row("new", 1, origin=13), row("a", 1))
    stage.runs("a", "W", "new")


def test_a_channel_missing_from_the_payload_keeps_its_former_cut() -> None:
    stage = Stage().receives(row("a1", 1), row("b1", 1, origin=12)).runs("a1", "b1")
    stage.receives(program(1, "V", cut=((10, 1, 1), (12, 1, 1)))).runs("V")
    # The second program names w10 only: of w12, what the first one named has run, and all else is pending.
    stage.receives(program(2, "W", cut=((10, 1, 2),)), row("b2", 2, origin=12)).is_in(DRAINING).is_idle()
    stage.receives(row("a2", 2)).runs("a2", "W", "b2")


def test_a_former_cut_delays_nothing_when_no_program_is_there() -> None:
    stage = Stage().receives(program(1, "V", cut=((10, 1, 1),)), row("a", 1)).runs("a", "V")
    stage.receives(row("c", 3), row("b", 2)).runs("c", "b")


def test_another_upstream_actor_goes_on_while_the_lessor_drains() -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 1, 1),)), row("t", 1, sender=T)).runs("t").is_in(DRAINING)
    stage.receives(row("a", 1)).runs("a", "W")


def test_a_cut_at_the_lessees_does_not_hold_the_lessor() -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 2, 7),))).is_in(MailboxState.BLOCKED)
    stage.receives(row("p", 1)).is_idle()
