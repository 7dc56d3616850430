"""A guided strategy does whatever the protocol allows and somebody else chooses, and nothing that it does not allow."""

from collections.abc import Callable

import pytest

from dirigo.kernel import MailboxState
from dirigo_lab.verification.guided import Freedom, Guided
from kernel.scenario import (
    AT,
    A,
    S,
    Stage,
    T,
    critical,
    forwarded,
    handed_back,
    out,
    program,
    registration,
    row,
    sync_request,
)


class Choices:
    """Answers from a list, and writes down how many ways there were."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def __call__(self, ways: int) -> int:
        self.asked.append(ways)
        return self.answers.pop(0)


def last(ways: int) -> int:
    """Always the last way, which is never to keep a message here."""
    return ways - 1


def guided(choose: Callable[[int], int], worker: int = 1, *, ordered: bool = False, lessees_max: int = 64) -> Stage:
    freedom = Freedom(forward={A: (2, 3)}, direct={A: (2, 3)}, hand_back=frozenset({A}))
    return Stage(worker, strategy=Guided(choose, freedom), ordered=ordered, lessees_max=lessees_max)


def test_keeping_a_message_and_every_lessee_are_ways_to_choose() -> None:
    choose = Choices(0, 1, 2)
    stage = guided(choose).receives(row("a", 1), row("b", 2), row("c", 3))
    stage.sends(forwarded("b", 1, 2), forwarded("c", 1, 3)).runs("a").is_idle()
    assert choose.asked == [3, 3, 3]


def test_only_lessees_that_may_be_leased_are_ways_to_choose() -> None:
    choose = Choices(2, 1)
    stage = guided(choose, lessees_max=1).receives(row("a", 1), row("b", 2))
    stage.sends(forwarded("a", 1, 3), forwarded("b", 2, 3))
    assert choose.asked == [3, 2]


def test_nothing_is_forwarded_during_a_round() -> None:
    stage = guided(last).receives(program(1, "W", cut=((10, 1, 1),))).forgets()
    stage.receives(row("t", 1, sender=T), row("a", 1)).sends_nothing().is_in(MailboxState.DRAINING)


def test_nothing_of_an_ordered_function_is_forwarded() -> None:
    choose = Choices()
    guided(choose, ordered=True).receives(row("a", 1), row("b", 2)).sends_nothing().runs("a", "b")
    assert choose.asked == []


def test_what_came_back_and_what_is_critical_is_not_forwarded() -> None:
    choose = Choices()
    guided(choose).receives(handed_back("a", 1, 2), program(1, "W")).runs("a", "W")
    assert choose.asked == []


def test_a_lessee_hands_back_to_its_lessor_and_to_nobody_else() -> None:
    choose = Choices(1, 0)
    stage = guided(choose, 2).receives(forwarded("a", 1, 2), forwarded("b", 2, 2)).sends(handed_back("a", 1, 2)).runs("b")
    assert choose.asked == [2, 2]
    stage.sends_nothing()


def test_a_lessee_that_may_not_refuse_is_not_asked() -> None:
    Stage(2, strategy=Guided(last, Freedom(forward={A: (2, 3)}))).receives(forwarded("a", 1, 2)).sends_nothing().runs("a")


def test_an_actor_without_freedom_keeps_its_messages() -> None:
    Stage(strategy=Guided(last, Freedom())).receives(row("a", 1)).sends_nothing().runs("a")


def test_what_runs_next_is_chosen_among_what_may_run() -> None:
    choose = Choices(0, 0, 0, 2, 1)
    guided(choose).receives(row("a", 1), row("b", 2), row("c", 3)).runs("c", "b", "a").is_idle()
    assert choose.asked == [3, 3, 3, 3, 2]


def test_a_blind_choice_may_fall_on_what_the_protocol_blocks_and_the_worker_holds_it() -> None:
    blind = Guided(last, Freedom(blind=True))
    stage = Stage(2, strategy=blind).receives(row("t", 1, sender=T, worker=2), sync_request(1, 2)).is_idle()
    assert [message.payload for message in stage.instance().held] == ["t"]


def test_a_message_that_the_protocol_blocks_is_kept_and_not_chosen() -> None:
    stage = (
        Stage(2, strategy=Guided(last, Freedom())).receives(row("t", 1, sender=T, worker=2), sync_request(1, 2)).is_idle()
    )
    assert stage.instance().held == []


@pytest.mark.parametrize(("choice", "worker"), [(0, None), (1, 2), (2, 3)])
def test_an_output_goes_home_or_to_a_lessee_as_chosen(choice: int, worker: int | None) -> None:
    stage = guided(Choices(choice), AT[S])
    stage.source()
    stage.emits(out(A, "x")).sends(row("x", 1) if worker is None else registration(1, worker))


def test_no_choice_is_asked_for_critical_outputs_nor_for_actors_without_freedom() -> None:
    choose = Choices()
    stage = guided(choose, AT[S])
    stage.source()
    stage.emits(critical(A, "W"), out("job/b/0", "x"))
    assert choose.asked == []
