"""The worker: instances come with messages and idle ones are dropped, one message runs at a time, hooks may ask for more."""

from collections.abc import Callable

import msgspec
import pytest

from dirigo.kernel import (
    Address,
    CriticalOutput,
    GraphError,
    JobProperties,
    MailboxState,
    Output,
    ProtocolError,
    Role,
    RunnableMessage,
    SchedulingContext,
    WorkerId,
)
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from kernel.scenario import (
    AT,
    A,
    B,
    D,
    S,
    Stage,
    Steered,
    T,
    critical,
    critical_ack,
    forwarded,
    out,
    program,
    program_ack,
    registration,
    reply,
    row,
    sync_request,
    unsync,
)

RUNNABLE, DRAINING, CRITICAL = MailboxState.RUNNABLE, MailboxState.DRAINING, MailboxState.CRITICAL


# --- instances come and go -----------------------------------------------------------------------------------------------


def test_an_instance_comes_with_its_first_message() -> None:
    stage = Stage()
    assert stage.worker.participants == {}
    stage.receives(row("a", 1))
    assert type(stage.worker.participants[A]) is Lessor
    assert stage.instance().function is None  # which comes with the first message that runs
    stage.runs("a")
    assert stage.instance().function is not None


def test_away_from_home_an_instance_is_a_lessee() -> None:
    stage = Stage(2).receives(forwarded("a", 1, 2))
    assert type(stage.worker.participants[A]) is Lessee


def test_a_message_for_an_actor_of_no_job_is_refused() -> None:
    with pytest.raises(GraphError, match="no job here has an actor 'job/x/0'; submit the job before sending to it"):
        Stage().receives(row("a", 1, to="job/x/0", worker=1))


def test_an_idle_function_is_dropped_and_comes_back_to_the_same_state() -> None:
    stage = Stage().receives(row("a", 1)).runs("a")
    function = stage.instance().function
    assert stage.worker.passivate(A)
    assert stage.instance().function is None
    assert stage.seen() == ["a"]
    stage.receives(row("b", 2)).runs("b")
    assert stage.instance().function is not function
    assert stage.seen() == ["a", "b"]


def test_a_passive_instance_still_takes_part_in_rounds() -> None:
    stage = Stage(2).receives(forwarded("a", 1, 2)).runs("a")
    assert stage.worker.passivate(A)
    stage.receives(sync_request(1, 2, forwards=1))
    assert reply(1, 2, "a") in stage.worker.outgoing
    assert stage.instance().function is None


def test_only_an_idle_function_can_be_dropped() -> None:
    stage = Stage(AT[S])
    stage.source()
    assert not stage.worker.passivate(S)  # a source has none
    assert not stage.worker.passivate(A)  # there is no instance

    stage = Stage().receives(row("a", 1))
    assert not stage.worker.passivate(A)  # it has none yet
    stage.starts("a")
    assert not stage.worker.passivate(A)  # it is running
    stage.ends().receives(program(1, "one", one=1), row("held", 2))
    assert not stage.worker.passivate(A)  # a message waits in its mailbox
    stage.receives(program(1, "one", sender=T, one=1)).runs("one", "held")
    assert stage.worker.passivate(A)
    assert not stage.worker.passivate(A)  # it is gone already


# --- one at a time -------------------------------------------------------------------------------------------------------


def test_one_message_runs_at_a_time() -> None:
    stage = Stage().receives(row("a", 1), row("b", 2)).starts("a")
    with pytest.raises(ProtocolError, match="asked for a message while one is running") as caught:
        stage.worker.next()
    assert (caught.value.rule, caught.value.who) == ("one-at-a-time", "w1")
    stage.ends().runs("b").is_idle()


def test_functions_share_their_worker() -> None:
    stage = Stage(AT[B]).receives(forwarded("a", 1, 7), row("b", 1, to=B), forwarded("c", 2, 7)).runs("a", "b", "c")
    assert stage.seen(A) == ["a", "c"]
    assert stage.seen(B) == ["b"]


def test_a_round_of_one_actor_does_not_stop_another_on_the_same_worker() -> None:
    stage = Stage(AT[B]).receives(forwarded("a", 1, 7), row("b", 1, to=B), sync_request(1, 7)).is_in(MailboxState.BLOCKED)
    stage.runs("b").is_idle().receives(unsync(1, 7)).runs("a")


def test_next_holds_what_the_protocol_blocks_and_the_end_of_the_round_releases_it() -> None:
    stage = Stage().receives(row("t", 1, sender=T), row("u", 2, sender=T), program(1, "W")).is_in(CRITICAL)
    stage.starts("W")
    assert [message.payload for message in stage.instance().held] == ["t", "u"]
    stage.ends()
    assert stage.instance().held == []
    assert stage.steering.offered == ["t", "u", "W", "t", "u"]
    stage.runs("t", "u")


def test_outputs_inherit_the_times_of_the_message_that_caused_them() -> None:
    stage = Stage(says={"a": (out(D, "x"),)})
    stage.receives(msgspec.structs.replace(row("a", 1), created=3.0, deadline=9.0)).runs("a")
    (sent,) = stage.worker.outgoing
    assert (sent.created, sent.deadline) == (3.0, 9.0)  # type: ignore[union-attr]


def test_a_strategy_may_ask_for_the_job_of_a_message_and_of_an_output() -> None:
    worker = Stage().worker
    assert worker.job(row("a", 1)) is worker.spec(A).job
    assert worker.job(out(D, "x")) is worker.spec(D).job == JobProperties("job", "job")  # if nobody says more


def test_what_is_known_of_a_job_cannot_be_changed() -> None:
    labels = {"team": "ads"}
    job = JobProperties("clicks~1", "clicks", labels=labels)
    labels["team"] = "search"
    assert job.labels == {"team": "ads"}
    with pytest.raises(TypeError):
        job.labels["team"] = "search"  # type: ignore[index]
    assert {job: 1}[JobProperties("clicks~1", "clicks", labels={"team": "ads"})] == 1


@pytest.mark.parametrize("ordered", [True, False])
def test_what_is_ordered_is_not_decomposable(ordered: bool) -> None:
    assert Stage(ordered=ordered).worker.spec(A).decomposable is not ordered


# --- what a strategy may ask ---------------------------------------------------------------------------------------------


class Asking(Steered):
    """Makes one request, inside the hook that the test names."""

    def __init__(self, hook: str, request: Callable[[SchedulingContext], None]) -> None:
        super().__init__()
        self.hook = hook
        self.request: Callable[[SchedulingContext], None] | None = request

    def ask(self, hook: str, context: SchedulingContext) -> None:
        if hook == self.hook and self.request is not None:
            request, self.request = self.request, None
            request(context)

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        self.ask("enqueue", context)
        return super().enqueue(context, message)

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        self.ask("get_next_message", context)
        return super().get_next_message(context)

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self.ask("pre_apply", context)

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        self.ask("post_apply", context)

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        self.ask("prepare_send", context)
        return super().prepare_send(context, sender, output)


@pytest.mark.parametrize("hook", ["enqueue", "get_next_message", "pre_apply", "prepare_send", "post_apply"])
def test_a_barrier_asked_for_in_any_hook_starts_when_the_hook_is_over(hook: str) -> None:
    strategy = Asking(hook, lambda context: context.run_alone(A, "alone"))
    stage = Stage(strategy=strategy, says={"a": (out(D, "x"),)}).receives(row("a", 1), row("b", 2))
    if hook == "enqueue":
        stage.is_in(CRITICAL).runs("alone", "b", "a")  # the strategy gave "a" away only after "b" was held
    else:
        stage.is_in(RUNNABLE).runs("a").is_in(CRITICAL).runs("alone", "b")
    stage.is_idle().is_in(RUNNABLE)


def test_a_barrier_asked_for_when_nothing_is_left_to_run_runs_at_once() -> None:
    Stage(strategy=Asking("get_next_message", lambda context: context.run_alone(A, "alone"))).runs("alone").is_idle()


@pytest.mark.parametrize("hook", ["pre_apply", "post_apply"])
def test_scale_in_can_be_asked_for_in_a_hook(hook: str) -> None:
    stage = Stage(strategy=Asking(hook, lambda context: context.scale_in(A))).receives(registration(1, 2), row("a", 1))
    stage.forgets().runs("a")
    assert [type(message).__name__ for message in stage.worker.outgoing] == ["Revoke"]


def test_what_a_strategy_asks_for_when_a_source_emits_starts_too() -> None:
    strategy = Asking("prepare_send", lambda context: context.run_alone(A, "alone"))
    stage = Stage(strategy=strategy)
    stage.source()
    stage.emits(out(B, "x")).is_in(CRITICAL).runs("alone")


def test_a_barrier_can_be_asked_of_the_lessor_only() -> None:
    stage = Stage(2).receives(forwarded("a", 1, 2))
    for ask in (lambda: stage.worker.run_alone(A, "x"), lambda: stage.worker.scale_in(A), lambda: stage.worker.lessees(A)):
        with pytest.raises(ProtocolError, match="it is a lessee; the lessor is at w1"):
            ask()
    stage.sends_nothing()


def test_a_strategy_can_read_facts_and_reading_them_creates_nothing() -> None:
    stage = Stage()
    assert [stage.worker.role(A), stage.worker.role(B)] == [Role.LESSOR, Role.LESSEE]
    assert stage.worker.mailbox_state(A) is RUNNABLE
    assert stage.worker.state_bytes(A) == 0
    assert stage.worker.spec(B).home == AT[B]
    assert stage.worker.participants == {}
    stage.receives(row("a", 1)).runs("a")
    assert stage.worker.state_bytes(A) > 0
    assert stage.worker.open_channels(A, D) == set()


def test_a_strategy_sees_every_message_that_is_not_blocked_and_only_those() -> None:
    stage = Stage().receives(row("a", 1), program(1, "W", cut=((10, 1, 1),)), row("p", 2), row("t", 1, sender=T))
    assert stage.steering.offered == ["a", "t"]
    stage.runs("a")
    assert stage.steering.offered == ["a", "t", "W"]
    stage.runs("W")  # before which "t" was asked for, and held
    assert stage.steering.offered == ["a", "t", "W", "p", "t"]


# --- observers -----------------------------------------------------------------------------------------------------------


class Told:
    """Writes down what an observer is told, except for rows."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def emitted(self, sender: Address, worker: WorkerId, output: Output | CriticalOutput) -> None:
        self.lines.append(f"emitted {output.payload}")

    def started(self, worker: WorkerId, message: RunnableMessage) -> None:
        self.lines.append(f"started {message.payload}")

    def executed(self, worker: WorkerId, message: RunnableMessage) -> None:
        self.lines.append(f"executed {message.payload}")

    def moved(self, address: Address, worker: WorkerId, row: object) -> None: ...


def test_an_observer_is_told_what_runs_and_what_leaves() -> None:
    stage = Stage(says={"a": (out(D, "x"), critical(D, "W"), out(D, "y"))})
    told = stage.worker.observer = Told()
    stage.receives(row("a", 1)).runs("a").receives(program_ack(1, to=A, by=D))
    assert told.lines == ["started a", "executed a", "emitted x", "emitted W", "emitted y"]


def test_a_whole_barrier_between_two_workers_reads_like_the_paper() -> None:
    home, away = Stage(says={"W": (critical(D, "d"),)}), Stage(2, says={"b": (out(D, "x"),)})
    home.steering.elsewhere["b"] = 2
    home.receives(row("a", 1), row("b", 2)).sends(forwarded("b", 1, 2)).runs("a")
    away.receives(forwarded("b", 1, 2)).runs("b").sends(row("x", 1, sender=A, origin=2, to=D))
    home.receives(program(1, "W", cut=((10, 1, 2),))).sends(program_ack(1), sync_request(1, 2, forwards=1))
    away.receives(sync_request(1, 2, forwards=1))
    home.receives(*away.worker.outgoing).runs("W")
    home.sends(program(1, "d", sender=A, to=D, cut=((2, 5, 1),)))
    home.receives(program_ack(1, to=A, by=D)).sends(critical_ack(1), unsync(1, 2, closed=(D,)))
    away.forgets().receives(unsync(1, 2, closed=(D,))).is_in(RUNNABLE).sends_nothing()
    assert home.seen() == ["a", "b", "W"]
