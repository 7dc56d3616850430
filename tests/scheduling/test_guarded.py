"""A strategy that is not ours: each kind of nonsense that it may answer gives one clear sentence."""

from collections.abc import Callable

import pytest

from dirigo.kernel import Address, CriticalOutput, Output, PolicyError, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling import Fifo, Strategy, StrategyExtras
from dirigo.scheduling.guarded import Guarded
from kernel.scenario import AT, A, S, Stage, T, forwarded, out, program, row, sync_request, unsync

POOL = (1, 2, 3)


class Mine(Fifo, StrategyExtras):
    """Answers what it is told to, and otherwise behaves."""

    def __init__(self, **answers: object) -> None:
        super().__init__()
        self.answers = answers

    def _answer(self, hook: str, otherwise: Callable[[], object]) -> object:
        return self.answers[hook] if hook in self.answers else otherwise()

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        return self._answer("enqueue", lambda: Fifo.enqueue(self, context, message))  # type: ignore[return-value]

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return self._answer("get_next_message", lambda: Fifo.get_next_message(self, context))  # type: ignore[return-value]

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        return self._answer("prepare_send", lambda: None)  # type: ignore[return-value]

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> tuple[WorkerId, ...]:
        return self._answer("also_wanted", tuple)  # type: ignore[return-value]

    def give_back(self, context: SchedulingContext, actor: Address) -> list[RunnableMessage]:
        return self._answer("give_back", list)  # type: ignore[return-value]

    def wake_at(self) -> float | None:
        return self._answer("wake_at", lambda: None)  # type: ignore[return-value]

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:
        return self._answer("backlog_s", lambda: (0.25, 0.5))  # type: ignore[return-value]


def stage(worker: int = 1, **answers: object) -> Stage:
    made = Stage(worker, strategy=Guarded(Mine(**answers)))
    made.worker.workers = POOL
    return made


# --- what is fine ------------------------------------------------------------------------------------------------------


def test_a_strategy_that_behaves_is_not_disturbed() -> None:
    stage().receives(row("a", 1), row("b", 2)).runs("a", "b").is_idle().sends_nothing()
    stage(enqueue=2).receives(row("a", 1)).sends(forwarded("a", 1, 2)).is_idle()
    quiet = stage(wake_at=7.5)
    assert quiet.worker.next_timer() == 7.5
    assert quiet.worker.extras.backlog_s(quiet.worker) == (0.25, 0.5)
    assert stage(backlog_s=[1, 2]).worker.extras.backlog_s(quiet.worker) == (1.0, 2.0)


def test_a_message_that_the_protocol_blocked_is_offered_and_returned_again() -> None:
    blocked = stage(2).receives(row("t", 1, sender=T, worker=2), sync_request(1, 2)).is_idle()
    blocked.receives(unsync(1, 2)).runs("t").is_idle()


def test_it_has_the_name_of_the_strategy_that_it_guards() -> None:
    assert Guarded(Mine()).name == "Mine"


# --- what is not -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker", [0, 9, -1, "2", 2.0, True, [2]])
def test_a_message_can_only_be_sent_to_a_worker_of_the_pool(worker: object) -> None:
    with pytest.raises(PolicyError, match=r"^Mine.enqueue returned .*, which is no worker; return one of context.workers$"):
        stage(enqueue=worker).receives(row("a", 1))


@pytest.mark.parametrize("wanted", [None, 2, (9,), ["2"]])
def test_others_to_ask_for_are_workers_of_the_pool_as_well(wanted: object) -> None:
    sender = stage(AT[S], prepare_send=2, also_wanted=wanted)
    sender.source()
    with pytest.raises(PolicyError, match=r"^Mine.also_wanted returned .*; return "):
        sender.emits(out(A, "x"))


@pytest.mark.parametrize("worker", [0, "2", object()])
def test_and_so_it_is_with_outputs(worker: object) -> None:
    sender = stage(AT[S], prepare_send=worker)
    sender.source()
    with pytest.raises(
        PolicyError, match=r"^Mine.prepare_send returned .*, which is no worker; return one of context.workers$"
    ):
        sender.emits(out(A, "x"))


@pytest.mark.parametrize("answer", ["a", 1, row("a", 1), (row("a", 1),)])
def test_only_what_was_given_can_be_returned(answer: object) -> None:
    with pytest.raises(
        PolicyError, match=r"^Mine.get_next_message returned .*, which is no message that it keeps; return each"
    ):
        stage(get_next_message=answer).receives(row("a", 1)).runs("a")


@pytest.mark.parametrize("given", [None, 2, "a", [row("a", 1)], [None]])
def test_only_what_is_kept_can_be_given_back(given: object) -> None:
    with pytest.raises(PolicyError, match=r"^Mine.give_back returned "):
        stage(give_back=given).receives(program(1, "W")).runs("W")


class Twice(Fifo):
    """Returns each message twice."""

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return self._queue[0] if self._queue else None


def test_each_message_can_be_returned_once() -> None:
    twice = Stage(strategy=Guarded(Twice())).receives(row("a", 1)).runs("a")
    with pytest.raises(PolicyError, match=r"Twice.get_next_message returned .*, which is no message that it keeps"):
        twice.is_idle()


@pytest.mark.parametrize("at", ["soon", float("nan"), (1.0,)])
def test_it_can_only_be_woken_at_a_time(at: object) -> None:
    with pytest.raises(PolicyError, match=r"^Mine.wake_at returned .*; return a time, or None$"):
        stage(wake_at=at).worker.next_timer()


def test_it_cannot_be_woken_for_ever() -> None:
    awake = stage(wake_at=1.0)
    awake.worker.now = 2.0
    with pytest.raises(PolicyError, match=r"^Mine.wake_at still returned 1.0 after it was woken then; return a later time"):
        awake.worker.fire_timers()


@pytest.mark.parametrize("backlog", [None, 3.0, (1.0,), (1.0, 2.0, 3.0), ("a", "b"), (-1.0, 1.0), (float("nan"), 1.0)])
def test_a_backlog_is_two_figures(backlog: object) -> None:
    strategy = stage(backlog_s=backlog).worker
    with pytest.raises(
        PolicyError, match=r"^Mine.backlog_s returned .*; return seconds of work, \(due within a second, in all\)$"
    ):
        strategy.extras.backlog_s(strategy)


def test_an_answer_that_is_long_is_not_shown_in_full() -> None:
    with pytest.raises(PolicyError) as error:
        stage(enqueue="x" * 1_000).receives(row("a", 1))
    assert len(str(error.value)) < 200


def test_what_it_raises_itself_is_left_alone() -> None:
    with pytest.raises(NotImplementedError, match="Strategy must say what happens to a message in enqueue"):
        Stage(strategy=Guarded(Strategy())).receives(row("a", 1))


# --- jobs that are gone ------------------------------------------------------------------------------------------------


def test_messages_of_a_job_that_is_gone_may_be_returned_and_are_skipped() -> None:
    stage().receives(row("a", 1), row("b", 2)).asks(lambda worker: worker.remove_job("job")).is_idle()


class Tidy(Fifo, StrategyExtras):
    """Drops the messages of a job that is gone."""

    def forget_job(self, job: str) -> None:
        self._queue.clear()


def test_or_dropped_and_nothing_is_kept_of_them() -> None:
    guarded = Guarded(Tidy())
    Stage(strategy=guarded).receives(row("a", 1), row("b", 2)).asks(lambda worker: worker.remove_job("job")).is_idle()
    assert not guarded._kept
