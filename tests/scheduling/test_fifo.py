"""Fifo: first in, first out, over all functions of all jobs."""

from dirigo.kernel import Context, CriticalRun, Data, Directory, FunctionSpec, Lane, States, Worker, actor_address
from dirigo.scheduling import Fifo
from dirigo.state import StateSet
from kernel.scenario import Stage, T, forwarded, handed_back, program, row


class Idle:
    def __init__(self, states: States) -> None: ...

    def on_message(self, context: Context, payload: object) -> None: ...

    def on_critical(self, context: Context, critical: CriticalRun) -> None: ...


def test_messages_run_in_the_order_of_their_arrival() -> None:
    stage = Stage(strategy=Fifo()).receives(row("b", 2), row("t", 1, sender=T), row("a", 1)).runs("b", "t", "a").is_idle()
    stage.sends_nothing()


def test_jobs_take_turns_as_their_messages_came() -> None:
    directory = Directory()
    jobs = [actor_address(job, "count") for job in ("red", "blue")]
    for address in jobs:
        directory.add_job([FunctionSpec(address, 1, Idle, lambda: StateSet({}), ("source",))])
    worker = Worker(1, directory, Fifo())
    order = [0, 0, 1, 0, 1, 1]
    for position, job in enumerate(order):
        seq = order[: position + 1].count(job)
        worker.receive(Data(jobs[job], 1, "source", 9, Lane.INPUT, seq, 0, position))
    ran = []
    while (message := worker.next()) is not None:
        worker.finish()
        ran.append((jobs.index(message.to), message.payload))
    assert ran == [(job, position) for position, job in enumerate(order)]


def test_fifo_sends_nothing_elsewhere_at_either_end() -> None:
    Stage(strategy=Fifo()).receives(row("a", 1), handed_back("b", 1, 2)).sends_nothing().runs("a", "b")
    Stage(2, strategy=Fifo()).receives(forwarded("a", 1, 2)).sends_nothing().runs("a")


def test_what_the_protocol_blocks_rejoins_the_queue_at_its_end() -> None:
    stage = Stage(strategy=Fifo()).receives(row("t", 1, sender=T), row("u", 2, sender=T), program(1, "W")).runs("W")
    stage.receives(row("a", 1)).runs("t", "u", "a")


def test_an_empty_queue_has_nothing_to_run() -> None:
    stage = Stage(strategy=Fifo()).is_idle()
    assert stage.worker.participants == {}
