"""What a strategy may send elsewhere, and the words with which it is told that it may not."""

import pytest

from dirigo.kernel import Data, Lane, MailboxState, PolicyError
from kernel.scenario import A, Stage, T, critical_run, forwarded, handed_back, program, row, sync_request

RUNNABLE, DRAINING, BLOCKED = MailboxState.RUNNABLE, MailboxState.DRAINING, MailboxState.BLOCKED


def insisting(word: str, worker: int, stage: Stage) -> Stage:
    stage.steering.elsewhere[word] = worker
    return stage.forgets()


# --- the lessor forwards -------------------------------------------------------------------------------------------------


def test_forwarding_is_the_scale_out_and_not_forwarding_needs_nothing() -> None:
    stage = (
        insisting("a", 2, Stage()).receives(row("a", 1), row("b", 2)).sends(forwarded("a", 1, 2)).runs("b").sends_nothing()
    )
    assert stage.worker.lessees(A) == {2}


def test_each_lessee_has_a_channel_of_its_own() -> None:
    stage = Stage()
    stage.steering.elsewhere = {"a": 2, "b": 3, "c": 2}
    stage.receives(row("a", 1), row("b", 2), row("c", 3))
    stage.sends(forwarded("a", 1, 2), forwarded("b", 1, 3), forwarded("c", 2, 2))


def test_a_forward_keeps_the_sender_and_the_times_of_the_message() -> None:
    insisting("t", 2, Stage()).receives(row("t", 1, sender=T)).sends(forwarded("t", 1, 2, sender=T))


@pytest.mark.parametrize(
    ("state", "allowed"),
    [(RUNNABLE, True), (DRAINING, False), (BLOCKED, False), (MailboxState.CRITICAL, False)],
)
def test_a_lessor_forwards_only_while_it_is_runnable(state: MailboxState, allowed: bool) -> None:
    stage = Stage()
    stage.instance().state = state
    assert stage.worker.may_forward(row("a", 1), 2) is allowed


def test_a_critical_message_may_not_be_forwarded() -> None:
    assert not Stage().worker.may_forward(critical_run("W"), 2)
    with pytest.raises(PolicyError, match="the strategy at w1 forwards a critical message of job/a/0"):
        insisting("W", 2, Stage()).receives(program(1, "W"))


def test_a_message_may_not_be_forwarded_while_the_lessor_drains() -> None:
    stage = insisting("t", 2, Stage().receives(program(1, "W", cut=((10, 1, 1),))))
    with pytest.raises(PolicyError) as caught:
        stage.receives(row("t", 1, sender=T))
    assert str(caught.value) == (
        "the strategy at w1 forwards a message of job/a/0 to w2, but the actor is DRAINING; ask may_forward first"
    )
    stage.sends_nothing()
    assert stage.worker.lessees(A) == set()


def test_a_message_of_an_ordered_function_may_not_be_forwarded() -> None:
    stage = insisting("a", 2, Stage(ordered=True))
    assert not stage.worker.may_forward(row("a", 1), 2)
    with pytest.raises(PolicyError, match="to w2, but the function is ordered and runs at its home only"):
        stage.receives(row("a", 1))
    stage.sends_nothing()


def test_a_message_that_came_back_may_not_be_forwarded_again() -> None:
    stage = insisting("a", 3, Stage())
    assert not stage.worker.may_forward(handed_back("a", 1, 2), 3)
    with pytest.raises(PolicyError, match="to w3, but a lessee handed it back, so it has to run at its home"):
        stage.receives(handed_back("a", 1, 2))


def test_a_lessor_may_not_forward_to_itself() -> None:
    stage = insisting("a", 1, Stage())
    assert not stage.worker.may_forward(row("a", 1), 1)
    with pytest.raises(PolicyError, match="to w1, but that is where it is"):
        stage.receives(row("a", 1))


def test_a_lessor_may_not_forward_to_more_lessees_than_its_bound() -> None:
    stage = insisting("a", 2, Stage(lessees_max=0))
    assert not stage.worker.may_forward(row("a", 1), 2)
    with pytest.raises(PolicyError, match="to w2, but the actor already has its 0 lessees"):
        stage.receives(row("a", 1))


# --- a lessee hands back -------------------------------------------------------------------------------------------------


def test_a_lessee_may_not_send_to_another_lessee() -> None:
    stage = insisting("a", 3, Stage(2))
    assert not stage.worker.may_forward(forwarded("a", 1, 2), 3)
    with pytest.raises(PolicyError) as caught:
        stage.receives(forwarded("a", 1, 2))
    assert str(caught.value) == (
        "the strategy at w2 sends a message of the lessee job/a/0 to w3, but a lessee can only hand back to its lessor at w1"
    )
    stage.sends_nothing()


def test_a_lessee_may_hand_back_until_it_is_blocked() -> None:
    stage = Stage(2).receives(forwarded("a", 1, 2))
    assert not stage.worker.may_forward(critical_run("W"), 1)
    assert stage.worker.may_forward(forwarded("a", 1, 2), 1)
    stage.receives(sync_request(1, 2, forwards=2)).is_in(DRAINING)
    assert stage.worker.may_forward(forwarded("b", 2, 2), 1)
    stage.receives(forwarded("b", 2, 2)).runs("a", "b").is_in(BLOCKED)
    assert not stage.worker.may_forward(forwarded("c", 3, 2), 1)


# --- what is kept is offered again after a round --------------------------------------------------------------------------


def test_what_came_during_a_round_can_be_forwarded_after_it() -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 1, 1),)), row("a", 1), row("t", 1, sender=T)).runs("a")
    stage.steering.kept.reverse()  # W is chosen before t
    stage.steering.given = {"t"}
    insisting("t", 2, stage).runs("W").is_idle()
    assert stage.steering.offered == ["a", "t", "W", "t"]
    (forward,) = (message for message in stage.worker.outgoing if isinstance(message, Data))
    assert (forward.payload, forward.worker, forward.lane) == ("t", 2, Lane.FORWARD)


def test_what_is_given_back_may_be_kept_again() -> None:
    stage = Stage().receives(program(1, "W", cut=((10, 1, 1),)), row("t", 1, sender=T), row("a", 1))
    stage.steering.kept.reverse()
    stage.steering.given = {"t"}
    stage.runs("a", "W", "t").is_idle()


def test_what_a_lessee_handed_back_cannot_be_given_back() -> None:
    stage = insisting("a", 2, Stage()).receives(row("a", 1))
    stage.receives(handed_back("a", 1, 2))
    stage.steering.given = {"a"}
    with pytest.raises(PolicyError, match="the strategy at w1 gives back a message of job/a/0 that has to run here"):
        stage.instance()._offer_again()  # type: ignore[attr-defined]


# --- what a barrier waits for ---------------------------------------------------------------------------------------------


def test_a_lessor_in_a_round_waits_for_the_messages_of_those_whose_barrier_it_is() -> None:
    stage = Stage().receives(row("a", 1))
    assert not stage.worker.is_awaited(row("a", 1))
    stage.receives(program(1, "W", cut=((10, 1, 2),)))
    assert stage.worker.is_awaited(row("a", 1))
    assert stage.worker.is_awaited(critical_run("W"))
    assert not stage.worker.is_awaited(row("t", 1, sender=T))


def test_a_lessee_in_a_round_waits_for_all() -> None:
    stage = Stage(2).receives(row("t", 1, sender=T, worker=2))
    assert not stage.worker.is_awaited(row("t", 1, sender=T, worker=2))
    stage.receives(sync_request(1, 2))
    assert stage.worker.is_awaited(row("t", 1, sender=T, worker=2))
