"""Strategies by name: each has one, and each worker gets a copy of its own."""

from random import Random
from threading import Lock

import pytest

from dirigo.scheduling import (
    DEFAULT,
    STRATEGIES,
    Fifo,
    RejectSend,
    Strategy,
    StrategyError,
    for_worker,
    name_of,
    strategy_named,
)
from dirigo.scheduling.guarded import Guarded
from kernel.scenario import Stage, row


class Mine(Fifo):
    """A strategy of a user."""

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.size = size


class Locked(Fifo):
    """One that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_name_makes_a_strategy_that_is_called_so(name: str) -> None:
    strategy = strategy_named(name)
    assert isinstance(strategy, Strategy)
    assert name_of(strategy) == name
    assert strategy_named(name) is not strategy


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_of_them_runs_what_it_is_given(name: str) -> None:
    stage = Stage(strategy=for_worker(strategy_named(name)))
    stage.worker.rng = Random(1)
    stage.receives(row("a", 1)).runs("a").is_idle().sends_nothing()


def test_there_is_a_default() -> None:
    assert DEFAULT in STRATEGIES


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(StrategyError) as error:
        strategy_named("wise")
    assert str(error.value).startswith("there is no strategy 'wise'; choose fifo, edf, reject_send, ")
    assert str(error.value).endswith(", or name your own as module:Class.")


def test_a_strategy_of_a_user_is_called_by_its_class() -> None:
    assert name_of(Mine()) == f"{Mine.__module__}:Mine"


def test_a_worker_gets_a_copy() -> None:
    pattern = RejectSend(lessees_max=3, quiet_s=7.0)
    one, other = for_worker(pattern), for_worker(pattern)
    assert type(one) is type(other) is RejectSend
    assert one is not other is not pattern
    assert (one.span.most, one.span) != (one.span.most, other.span)


def test_copies_share_no_messages() -> None:
    pattern = Fifo()
    one, other = (Stage(strategy=for_worker(pattern)) for _ in range(2))
    one.receives(row("a", 1))
    other.is_idle()
    one.runs("a")


def test_a_strategy_of_a_user_is_watched_and_ours_are_not() -> None:
    assert isinstance(for_worker(Mine(3)), Guarded)
    assert not isinstance(for_worker(Fifo()), Guarded)


def test_one_that_cannot_be_copied_is_refused() -> None:
    with pytest.raises(
        StrategyError, match=r"the strategy .*:Locked cannot be copied, and each worker needs a copy: TypeError"
    ):
        for_worker(Locked())
