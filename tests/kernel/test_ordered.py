"""An ordered function runs at its lessor only, in the order of ids on each channel, however its messages arrive."""

from itertools import permutations

import pytest

from dirigo.kernel import MailboxState
from kernel.scenario import Stage, T, critical_ack, grant, program, program_ack, registration, row

DRAINING = MailboxState.DRAINING


@pytest.mark.parametrize("order", list(permutations((1, 2, 3, 4))))
def test_messages_of_one_channel_run_in_the_order_of_their_ids(order: tuple[int, ...]) -> None:
    stage = Stage(ordered=True).receives(*(row(f"{seq}", seq) for seq in order))
    stage.runs("1", "2", "3", "4").is_idle()


def test_the_strategy_never_has_two_messages_of_one_channel() -> None:
    stage = Stage(ordered=True).receives(row("a", 1), row("b", 2), row("c", 3))
    assert stage.steering.offered == ["a"]
    stage.runs("a")
    assert stage.steering.offered == ["a", "b"]


def test_channels_do_not_wait_for_each_other() -> None:
    stage = Stage(ordered=True).receives(
        row("a2", 2), row("t", 1, sender=T), row("b1", 1, origin=12), row("b2", 2, origin=12)
    )
    stage.runs("t", "b1", "b2").is_idle().receives(row("a1", 1)).runs("a1", "a2")


def test_a_message_delivered_twice_runs_once_even_if_it_was_parked() -> None:
    stage = Stage(ordered=True).receives(row("b", 2), row("b", 2), row("a", 1), row("a", 1))
    stage.runs("a", "b").receives(row("b", 2)).is_idle()


def test_a_gap_in_the_middle_stops_the_channel_there() -> None:
    stage = Stage(ordered=True).receives(row("d", 4), row("a", 1), row("b", 2)).runs("a", "b").is_idle()
    stage.receives(row("c", 3)).runs("c", "d")


def test_a_barrier_comes_between_the_ids_that_it_separates() -> None:
    stage = Stage(ordered=True).receives(row("c", 3), program(1, "W", cut=((10, 1, 2),)), row("b", 2)).is_in(DRAINING)
    stage.receives(row("a", 1)).runs("a", "b", "W", "c").sends(program_ack(1), critical_ack(1))


def test_what_is_pending_keeps_its_order_when_it_is_released() -> None:
    stage = Stage(ordered=True).receives(program(1, "W"), row("b", 2), row("a", 1)).runs("W", "a", "b")
    stage.receives(program(2, "V", cut=((10, 1, 2),)), row("c", 3), row("d", 4)).runs("V", "c", "d")


def test_two_queued_barriers_separate_parked_messages() -> None:
    stage = Stage(ordered=True).receives(row("c", 3), row("b", 2))
    stage.receives(program(1, "V", cut=((10, 1, 1),)), program(2, "W", cut=((10, 1, 2),))).receives(row("a", 1))
    stage.runs("a", "V", "b", "W", "c")


def test_an_ordered_function_is_never_leased_by_a_grant() -> None:
    stage = Stage(ordered=True).receives(registration(1, 2, 3)).sends(grant(1))
    assert stage.worker.lessees("job/a/0") == set()


def test_an_ordered_function_is_never_leased_by_a_forward() -> None:
    assert not Stage(ordered=True).worker.may_forward(row("a", 1), 2)
