"""Several strategies at one worker: time is shared by weight, and a strategy that fails takes its own jobs only."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dirigo.kernel import (
    Address,
    Context,
    CriticalOutput,
    CriticalRun,
    Data,
    Directory,
    FunctionSpec,
    Lane,
    Output,
    PolicyError,
    RunnableMessage,
    SchedulingContext,
    States,
    Worker,
    WorkerId,
    actor_address,
    job_of,
)
from dirigo.scheduling import Arbiter, Edf, Fifo, Strategy, StrategyExtras, StrategyFailure
from dirigo.state import StateSet

SERVICE_S = 0.01


class Idle:
    def __init__(self, states: States) -> None: ...

    def on_message(self, context: Context, payload: object) -> None: ...

    def on_critical(self, context: Context, critical: CriticalRun) -> None: ...


class Site:
    """A worker whose jobs have strategies of their own."""

    def __init__(self) -> None:
        self.arbiter = Arbiter()
        self.worker = Worker(1, Directory(), self.arbiter)
        self.last: Counter[str] = Counter()
        self.ran: list[str] = []

    def add(self, job: str, key: str, make: Callable[[], Strategy] = Fifo, weight: float = 1.0) -> None:
        self.arbiter.add_job(job, key, make, weight)
        self.worker.directory.add_job(
            [FunctionSpec(actor_address(job, "work"), 1, Idle, lambda: StateSet({}), (actor_address(job, "source"),))]
        )

    def receive(self, job: str, count: int = 1, deadline: float = float("inf")) -> None:
        for _ in range(count):
            self.last[job] += 1
            source = actor_address(job, "source")
            self.worker.receive(
                Data(actor_address(job, "work"), 1, source, 9, Lane.INPUT, self.last[job], 0, job, 0.0, deadline)
            )

    def run(self, count: int = 1_000_000, service_s: float = SERVICE_S) -> Counter[str]:
        """Let so many messages run; whose they were."""
        ran: Counter[str] = Counter()
        while count and (message := self.worker.next()) is not None:
            self.worker.apply()
            self.worker.now += service_s
            self.worker.finish(service_s)
            self.ran.append(job_of(message.to))
            ran[job_of(message.to)] += 1
            count -= 1
        return ran


class Noisy(Strategy, StrategyExtras):
    """Fails where it is told to."""

    def __init__(self, fails_in: str) -> None:
        self._fails_in = fails_in
        self._kept: list[RunnableMessage] = []

    def _maybe_fail(self, hook: str) -> None:
        if hook == self._fails_in:
            raise ZeroDivisionError("no more")

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        self._maybe_fail("enqueue")
        self._kept.append(message)
        return None

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        self._maybe_fail("get_next_message")
        return self._kept.pop(0) if self._kept else None

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self._maybe_fail("pre_apply")

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        self._maybe_fail("prepare_send")
        return None

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> tuple[WorkerId, ...]:
        self._maybe_fail("also_wanted")
        return ()

    def give_back(self, context: SchedulingContext, actor: Address) -> tuple[RunnableMessage, ...]:
        self._maybe_fail("give_back")
        return ()

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        self._maybe_fail("post_apply")

    def note_barrier(self, context: SchedulingContext, actor: Address) -> None:
        self._maybe_fail("note_barrier")

    def note_received(self, context: SchedulingContext, actor: Address, worker: WorkerId, note: Any) -> None:
        self._maybe_fail("note_received")

    def wake_at(self) -> float | None:
        self._maybe_fail("wake_at")
        return 5.0

    def wake(self, context: SchedulingContext) -> None:
        self._maybe_fail("wake")

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:
        self._maybe_fail("backlog_s")
        return (1.0, 2.0)

    def forget_job(self, job: str) -> None:
        self._maybe_fail("forget_job")


# --- shares ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("red", "blue"), [(1.0, 1.0), (3.0, 1.0), (1.0, 4.0), (0.5, 0.25)])
def test_strategies_share_the_time_by_weight(red: float, blue: float) -> None:
    site = Site()
    site.add("red", "a", weight=red)
    site.add("blue", "b", weight=blue)
    for job in ("red", "blue"):
        site.receive(job, 400)
    ran = site.run(400)
    assert ran["red"] / ran["blue"] == pytest.approx(red / blue, rel=0.05)


def test_it_is_time_that_is_shared_not_messages() -> None:
    site = Site()
    site.add("quick", "a")
    site.add("slow", "b")
    for job in ("quick", "slow"):
        site.receive(job, 400)
    seconds: Counter[str] = Counter()
    for _ in range(300):
        message = site.worker.next()
        assert message is not None
        service_s = 0.04 if message.payload == "slow" else 0.01
        site.worker.finish(service_s)
        seconds[message.payload] += round(service_s * 100)
    assert seconds["quick"] == pytest.approx(seconds["slow"], rel=0.05)


def test_jobs_that_name_the_same_strategy_share_it() -> None:
    site = Site()
    made: list[Strategy] = []

    def make() -> Strategy:
        made.append(Edf())
        return made[-1]

    site.add("red", "edf", make)
    site.add("blue", "edf", make)
    assert len(made) == 1
    site.receive("red", deadline=5.0)
    site.receive("blue", deadline=1.0)
    site.receive("red", deadline=0.5)
    site.run()
    assert site.ran == ["red", "blue", "red"]


def test_a_strategy_with_several_jobs_has_the_weight_of_all_of_them() -> None:
    site = Site()
    site.add("red", "a")
    site.add("pink", "a")
    site.add("blue", "b")
    for job in ("red", "pink", "blue"):
        site.receive(job, 300)
    ran = site.run(300)
    assert ran["blue"] == pytest.approx(100, abs=3)
    site.worker.remove_job("pink")
    assert site.run(200)["blue"] == pytest.approx(100, abs=3)


def test_nobody_waits_for_one_that_has_nothing_to_run() -> None:
    site = Site()
    site.add("red", "a", weight=0.01)
    site.add("blue", "b", weight=100.0)
    site.receive("red", 50)
    assert site.run() == {"red": 50}


def test_who_had_nothing_to_run_has_not_saved_up() -> None:
    site = Site()
    site.add("red", "a")
    site.add("blue", "b")
    site.receive("red", 500)
    site.run(400)
    site.receive("blue", 200)
    ran = site.run(100)
    assert ran["red"] == pytest.approx(50, abs=2)


def test_who_comes_later_begins_where_the_others_are() -> None:
    site = Site()
    site.add("red", "a")
    site.receive("red", 500)
    site.run(300)
    site.add("blue", "b")
    site.receive("blue", 200)
    ran = site.run(100)
    assert ran["red"] == pytest.approx(50, abs=2)


def test_a_job_that_is_gone_leaves_nothing_behind() -> None:
    site = Site()
    site.add("red", "a")
    site.add("blue", "b")
    site.receive("red", 3)
    site.receive("blue", 3)
    site.worker.remove_job("red")
    assert site.run() == {"blue": 3}
    site.arbiter.forget_job("red")  # twice does no harm


# --- failures ----------------------------------------------------------------------------------------------------------


def noisy_site(hook: str) -> Site:
    """Two jobs under a strategy that fails, and one under another."""
    site = Site()
    site.add("red", "noisy", lambda: Noisy(hook))
    site.add("pink", "noisy")
    site.add("blue", "fifo")
    return site


@pytest.mark.parametrize("hook", ["enqueue", "pre_apply", "post_apply"])
def test_in_a_hook_for_a_message_the_job_of_that_message_fails(hook: str) -> None:
    site = noisy_site(hook)
    with pytest.raises(
        StrategyFailure, match=rf"^the strategy Noisy failed in {hook}: ZeroDivisionError: no more$"
    ) as error:
        _receive_and_run(site)
    assert error.value.jobs == ("red",)


def _receive_and_run(site: Site) -> None:
    site.receive("red")
    site.run()


@pytest.mark.parametrize("hook", ["note_received", "note_barrier", "prepare_send", "also_wanted", "give_back"])
def test_and_so_it_is_where_a_hook_is_told_of_an_actor(hook: str) -> None:
    site = noisy_site(hook)
    worker, actor = site.worker, actor_address("pink", "work")
    calls: dict[str, Callable[[], object]] = {
        "note_received": lambda: site.arbiter.note_received(worker, actor, 2, "note"),
        "note_barrier": lambda: site.arbiter.note_barrier(worker, actor),
        "prepare_send": lambda: site.arbiter.prepare_send(worker, actor, Output("pink/sink/0", 1)),
        "also_wanted": lambda: site.arbiter.also_wanted(worker, actor, "pink/sink/0"),
        "give_back": lambda: site.arbiter.give_back(worker, actor),
    }
    with pytest.raises(StrategyFailure, match=f"failed in {hook}") as error:
        calls[hook]()
    assert error.value.jobs == ("pink",)


@pytest.mark.parametrize("hook", ["get_next_message", "wake", "wake_at", "backlog_s"])
def test_elsewhere_all_jobs_of_the_strategy_fail_and_no_others(hook: str) -> None:
    site = noisy_site(hook)
    worker = site.worker
    worker.now = 6.0
    calls: dict[str, Callable[[], object]] = {
        "get_next_message": worker.next,
        "wake": worker.fire_timers,
        "wake_at": worker.next_timer,
        "backlog_s": lambda: site.arbiter.backlog_s(worker),
    }
    with pytest.raises(StrategyFailure, match=f"the strategy Noisy failed in {hook}") as error:
        calls[hook]()
    assert error.value.jobs == ("red", "pink")


def test_once_its_jobs_are_gone_the_others_go_on() -> None:
    site = noisy_site("get_next_message")
    site.receive("red", 3)
    site.receive("blue", 3)
    with pytest.raises(StrategyFailure) as error:
        site.run()
    for job in error.value.jobs:
        site.worker.remove_job(job)
    assert site.run() == {"blue": 3}


def test_forgetting_a_job_never_fails() -> None:
    site = noisy_site("forget_job")
    site.worker.remove_job("red")
    site.receive("pink")
    assert site.run() == {"pink": 1}


def test_a_sentence_of_ours_is_passed_on_as_it_is() -> None:
    class Refusing(Fifo):
        def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
            raise PolicyError("this is how it should be done")

    site = Site()
    site.add("red", "a", Refusing)
    with pytest.raises(StrategyFailure, match=r"^the strategy Refusing failed in get_next_message: this is how it should"):
        site.run()


# --- the rest ----------------------------------------------------------------------------------------------------------


def test_it_is_woken_when_the_first_of_them_wants_to_be() -> None:
    site = Site()
    assert site.worker.next_timer() is None
    site.add("red", "fifo")
    assert site.worker.next_timer() is None
    site.add("blue", "noisy", lambda: Noisy(""))
    assert site.worker.next_timer() == 5.0


def test_backlogs_add_up() -> None:
    site = Site()
    for index in range(3):
        site.add(f"job{index}", f"noisy{index}", lambda: Noisy(""))
    assert site.arbiter.backlog_s(site.worker) == (3.0, 6.0)


def test_a_note_for_a_job_that_is_gone_is_dropped() -> None:
    site = noisy_site("note_received")
    site.arbiter.note_received(site.worker, actor_address("gone", "work"), 2, "note")
