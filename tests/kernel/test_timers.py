"""Processing-time timers: a timer that is due is a barrier of the actor on itself; timers move with the partial state."""

from dirigo.kernel import Context, CriticalOutput, CriticalRun, Directory, FunctionSpec, MailboxState, States, Worker
from dirigo.kernel.interface.message import SyncReply
from dirigo.state import StateSet
from kernel.scenario import A, S, Steered, forwarded, intent, partial, program, reply, request_ack, row, sync_request

RUNNABLE, CRITICAL = MailboxState.RUNNABLE, MailboxState.CRITICAL


class Alarm:
    """A message "5" sets a timer that is due at 5."""

    def __init__(self, states: States) -> None: ...

    def on_message(self, context: Context, payload: str) -> None:
        context.set_timer(float(payload), f"due {payload}")

    def on_critical(self, context: Context, critical: CriticalRun) -> None: ...


def alarm_worker(worker: int = 1) -> tuple[Worker, Steered]:
    directory = Directory()
    directory.add_job([FunctionSpec(A, 1, Alarm, lambda: StateSet({}), (S,))])
    strategy = Steered()
    return Worker(worker, directory, strategy), strategy


def run(worker: Worker) -> str:
    message = worker.next()
    assert message is not None
    worker.apply()
    worker.finish()
    return str(message.payload)


def at(worker: Worker, now: float) -> None:
    worker.now = now
    worker.fire_timers()


def test_the_host_is_told_when_the_next_timer_is_due() -> None:
    worker, _ = alarm_worker()
    assert worker.next_timer() is None
    for seq, due in enumerate(("7", "5", "9"), start=1):
        worker.receive(row(due, seq))
        run(worker)
    assert worker.next_timer() == 5.0


def test_a_timer_fires_when_it_is_due_and_not_before_and_only_once() -> None:
    worker, _ = alarm_worker()
    worker.receive(row("5", 1))
    run(worker)
    at(worker, 4.9)
    assert worker.next() is None
    at(worker, 5.0)
    assert worker.mailbox_state(A) is CRITICAL
    assert worker.next_timer() is None
    assert worker.timed == set()
    at(worker, 6.0)
    assert run(worker) == "due 5"
    assert worker.next() is None
    assert worker.mailbox_state(A) is RUNNABLE


def test_timers_that_are_due_together_fire_the_earliest_first() -> None:
    worker, _ = alarm_worker()
    for seq, due in enumerate(("7", "5", "9", "6"), start=1):
        worker.receive(row(due, seq))
        run(worker)
    at(worker, 8.0)
    assert [run(worker), run(worker), run(worker)] == ["due 5", "due 6", "due 7"]
    assert worker.next_timer() == 9.0


def test_a_timer_that_is_due_while_a_message_runs_waits_for_its_end() -> None:
    worker, _ = alarm_worker()
    worker.receive(row("5", 1))
    run(worker)
    worker.receive(row("9", 2))
    worker.next()
    at(worker, 5.0)
    assert worker.mailbox_state(A) is RUNNABLE
    worker.apply()
    worker.finish()
    assert run(worker) == "due 5"


def test_the_timers_of_a_lessee_move_to_the_lessor_with_its_reply() -> None:
    worker, _ = alarm_worker(2)
    worker.receive(forwarded("5", 1, 2))
    run(worker)
    worker.receive(sync_request(1, 2, forwards=1))
    answer = SyncReply(A, 1, 2, 1, partial(), (), 0, ((5.0, "due 5"),))
    assert worker.outgoing == [request_ack(1, 2), answer]
    assert worker.next_timer() is None
    assert worker.timed == set()

    home, strategy = alarm_worker()
    strategy.elsewhere["5"] = 2
    home.receive(row("5", 1))
    home.receive(program(1, "W", cut=((10, 1, 1),)))
    home.receive(answer)
    assert home.next_timer() == 5.0
    assert run(home) == "W"
    at(home, 5.0)
    assert run(home) == "due 5"


def test_a_timer_that_is_due_at_a_lessee_is_an_intent_for_the_lessor() -> None:
    worker, _ = alarm_worker(2)
    worker.receive(forwarded("5", 1, 2))
    run(worker)
    at(worker, 5.0)
    assert worker.outgoing == [intent(1, 2, CriticalOutput(A, "due 5", created=5.0, sent=5.0))]
    worker.receive(sync_request(1, 2, forwards=1))
    assert worker.outgoing[1:] == [request_ack(1, 2), reply(1, 2, returned=1)]
