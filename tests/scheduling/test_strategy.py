"""The base class of strategies: harmless where it can be, clear where it cannot."""

import pytest

from dirigo.kernel import RunnableMessage, SchedulingContext
from dirigo.scheduling import Strategy
from kernel.scenario import A, D, Stage, out, row


class Forgetful(Strategy):
    """Lacks both hooks that have to be there."""


class Greedy(Strategy):
    """Takes messages, but does not say what runs next."""

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> None: ...


class Minimal(Greedy):
    """The least that a strategy has to be."""

    def __init__(self) -> None:
        self.kept: list[RunnableMessage] = []

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self.kept.append(message)

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return self.kept.pop() if self.kept else None


def test_a_strategy_without_enqueue_is_told_so_by_name() -> None:
    with pytest.raises(NotImplementedError, match="Forgetful must say what happens to a message in enqueue"):
        Stage(strategy=Forgetful()).receives(row("a", 1))


def test_a_strategy_without_get_next_message_is_told_so_by_name() -> None:
    with pytest.raises(NotImplementedError, match="Greedy must say what runs next in get_next_message"):
        Stage(strategy=Greedy()).receives(row("a", 1)).runs("a")


def test_two_hooks_are_enough_and_the_others_do_nothing() -> None:
    stage = Stage(strategy=Minimal(), says={"b": (out(D, "x"),)}).receives(row("a", 1), row("b", 2))
    stage.runs("b").sends(row("x", 1, sender=A, to=D)).runs("a").is_idle()


def test_by_default_an_output_goes_home() -> None:
    stage = Stage()
    assert Strategy().prepare_send(stage.worker, A, out(D, "x")) is None


def test_what_is_none_of_the_five_hooks_has_to_be_asked_for() -> None:
    with pytest.raises(
        TypeError, match=r"^Awake.wake_at is none of the five hooks, .*; derive Awake from dg.StrategyExtras too$"
    ):

        class Awake(Strategy):
            def wake_at(self) -> float | None:
                return 1.0
