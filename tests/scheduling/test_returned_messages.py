"""What a barrier leaves at the home of an actor is spread afterwards, so that one which has fallen behind recovers."""

from collections.abc import Callable
from statistics import median

import pytest

from dirigo.kernel import Lane, RunnableMessage
from dirigo.scheduling import DirectSend, DirectSendP2C, DirectSendRandom, Strategy, StrategyExtras
from dirigo.scheduling.strategies.returned_messages import ReturnedMessages
from kernel.scenario import Stage, row
from scheduling.pool import Load, Pool

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "direct_send": DirectSend,
    "home first": lambda: DirectSend(home_first=True),
    "direct_send_p2c": DirectSendP2C,
    "direct_send_random": DirectSendRandom,
}
BARRIER_EVERY_S = 0.2
BEHIND_UNTIL_S, END_S = 1.0, 6.0


def hot(strategy: Callable[[], Strategy]) -> Load:
    """An actor that needs three workers. Its home is stopped at first, and falls behind by several barriers."""
    pool = Pool(strategy, workers=8)
    job = pool.job("job", service_s=0.01, latency_s=0.2, sources=(4, 5, 6, 7))
    job.random(0.0, END_S, per_s=300, seed=1)
    for number in range(1, round(END_S / BARRIER_EVERY_S) + 1):
        job.barrier(number * BARRIER_EVERY_S)
    pool.cluster.freeze(1, 0.05, BEHIND_UNTIL_S)
    pool.run()
    return job


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_actor_that_has_fallen_behind_recovers(name: str) -> None:
    job = hot(STRATEGIES[name])
    assert median(each.latency_s for each in job.ran if each.message.created > END_S - 1.0) < 0.3
    assert job.total() == job.emitted


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_that_it_would_stay_behind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (DirectSend, DirectSendP2C, DirectSendRandom):
        monkeypatch.setattr(kind, "give_back", StrategyExtras.give_back)
    job = hot(STRATEGIES[name])
    assert median(each.latency_s for each in job.ran if each.message.created > END_S - 1.0) > 1.0


def test_what_was_given_back_is_known_when_it_is_offered_again_and_only_then() -> None:
    stage = Stage(strategy=DirectSendRandom())
    first, second = (row("a", 1), row("a", 2))
    given_back = ReturnedMessages()
    chosen: list[RunnableMessage] = []

    def choose(_: object, message: RunnableMessage) -> None:
        chosen.append(message)

    assert given_back.note([first]) == [first]
    for message in (second, first, first):
        assert given_back.elsewhere(stage.worker, message, choose) is None
    assert chosen == [first]
    assert first.lane is Lane.INPUT
