"""What one data message costs in the kernel and a strategy together, while many others wait; and the admission test alone.

Measured is the whole way at one worker, as for the kernel alone: receive, enqueue, next, pre_apply, a function that emits
one output, prepare_send, finish, post_apply; the call of that function, half a microsecond, is included. As many messages
wait as is said, and for each that comes, to one of three jobs with different objectives, one runs. Nothing is forwarded,
since these functions have no lessees; where senders spread their messages, channels to 16 lessees of their targets are open.
Time goes by as if each message took what it is said to take, so that costs are learned, deadlines pass, and structures that
move with time do. Measured is processor time.

How hard it is to say that nothing will be late depends on how much waits: "pressed" is the same with twenty times the
work in each message, which from a thousand messages on is more than can be done before the first of them is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from statistics import median
from time import process_time

from dirigo.kernel import (
    Address,
    Data,
    Directory,
    FunctionSpec,
    JobProperties,
    Lane,
    Objective,
    Worker,
    actor_address,
)
from dirigo.kernel.interface.message import Grant, Registration
from dirigo.scheduling import STRATEGIES
from dirigo.scheduling.deadline_queue import DeadlineQueue
from dirigo_lab.bench.job import BenchRelay, no_states, sum_spec

NAMES = ("fifo", "edf", "reject_send", "reject_send, pressed", "tokens", "hybrid", "direct_send")
QUEUED = (10, 100, 1_000, 10_000)
ADMISSIONS_QUEUED = (10, 1_000, 10_000)
MESSAGES = 10_000
REPEATS = 5
BUDGETS_US = {"fifo": 10.0, "edf": 15.0, "reject_send": 15.0}  # with BUDGET_QUEUED waiting
BUDGET_QUEUED = 1_000
FLATNESS_MOST = 2.0  # the cost with the most messages waiting over that with the fewest

_LATENCIES_S = (0.1, 1.0, float("inf"))  # a job each
_ACTORS = 4  # of each job
_WORKERS = 17
_SERVICE_S = 0.000_005
PRESSED = ", pressed"
_PRESSED_S = 0.000_1


@dataclass(frozen=True)
class StrategyCost:
    """Microseconds per message by number of messages that wait; medians over the repeats."""

    strategy: str
    us: dict[int, float]

    @property
    def flatness(self) -> float:
        return self.us[max(self.us)] / self.us[min(self.us)]

    @property
    def budget_us(self) -> float | None:
        return BUDGETS_US.get(self.strategy)

    def within_budget(self) -> bool:
        if self.budget_us is None:
            return True
        dear_us = max((us for queued, us in self.us.items() if queued <= BUDGET_QUEUED), default=0.0)
        return dear_us <= self.budget_us and self.flatness <= FLATNESS_MOST


@dataclass(frozen=True)
class StrategyCosts:
    """All strategies, and the admission test that those with deadlines make for each message."""

    costs: tuple[StrategyCost, ...]
    admission_us: dict[int, float]  # by number of messages that wait

    def within_budget(self) -> bool:
        return all(cost.within_budget() for cost in self.costs)


def measure_strategies(
    queued: tuple[int, ...] = QUEUED,
    messages: int = MESSAGES,
    repeats: int = REPEATS,
    names: tuple[str, ...] = NAMES,
    admissions_queued: tuple[int, ...] = ADMISSIONS_QUEUED,
) -> StrategyCosts:
    """Measure each strategy at each length of the queue. They take turns, so that a disturbance hits all of them alike."""
    benches = {(name, count): _Bench(name, count) for name in names for count in queued}
    rounds = [{key: bench.run(messages) for key, bench in benches.items()} for _ in range(repeats)]
    us = {key: median(each[key] for each in rounds) for key in benches}
    return StrategyCosts(
        tuple(StrategyCost(name, {count: us[name, count] for count in queued}) for name in names),
        {count: median(_time_admissions(count, messages) for _ in range(repeats)) for count in admissions_queued},
    )


class _Bench:
    """One worker with relays of several jobs, and messages that wait for them."""

    def __init__(self, strategy: str, queued: int) -> None:
        directory, self._relays = _jobs()
        self._service_s = _PRESSED_S if strategy.endswith(PRESSED) else _SERVICE_S
        self._worker = Worker(0, directory, STRATEGIES[strategy.removesuffix(PRESSED)]())
        self._rng = Random(0)
        self._worker.rng = self._rng
        self._worker.workers = tuple(range(_WORKERS))
        self._worker.now = 1_000_000.0
        self._last_ids = dict.fromkeys(self._relays, 0)
        self._open_channels()
        for message in self._inputs(queued, self._relays[-_ACTORS:]):  # of the job that can wait
            self._worker.receive(message)

    def run(self, messages: int) -> float:
        """Microseconds per message over some of them."""
        batch = list(self._inputs(messages))
        begin = process_time()
        _pass_through(self._worker, batch, self._service_s)
        elapsed_s = process_time() - begin
        return elapsed_s / messages * 1e6

    def _open_channels(self) -> None:
        """Let messages run, and grant every channel that is asked for, until none is any more."""
        worker = self._worker
        for _ in range(100):
            _pass_through(worker, list(self._inputs(200)), self._service_s, answer=_grant)
            if all(len(worker.open_channels(relay, _target_of(relay))) in (0, _WORKERS - 1) for relay in self._relays):
                return
        raise RuntimeError("the benchmark's channels did not open")

    def _inputs(self, count: int, relays: list[Address] | None = None) -> Iterator[Data]:
        """The next messages, to relays by chance, as they come in while others run."""
        now, relays = self._worker.now, relays or self._relays
        for _ in range(count):
            relay = relays[self._rng.randrange(len(relays))]
            latency_s = self._worker.spec(relay).job.objective.latency_s
            self._last_ids[relay] += 1
            source = _source_of(relay)
            yield Data(relay, 0, source, 0, Lane.INPUT, self._last_ids[relay], 0, 0, now, now + latency_s, now)
            now += self._service_s


def _pass_through(
    worker: Worker, batch: list[Data], service_s: float, answer: Callable[[Worker], None] | None = None
) -> None:
    """For each message that comes, one that waits runs."""
    receive, choose, apply, finish, outgoing = worker.receive, worker.next, worker.apply, worker.finish, worker.outgoing
    for message in batch:
        worker.now = message.created
        receive(message)
        choose()
        apply()
        finish(service_s)
        if answer is not None:
            answer(worker)
        outgoing.clear()
    worker.now += service_s


def _grant(worker: Worker) -> None:
    for message in list(worker.outgoing):
        if isinstance(message, Registration):
            worker.receive(Grant(message.sender, message.origin, message.to, message.number, message.wanted, 0))


def _time_admissions(queued: int, tests: int) -> float:
    """Microseconds of one look at a queue: what is ahead of a newcomer, and who would be late because of it."""
    rng = Random(0)
    queue, now = DeadlineQueue(), 1_000_000.0
    queue.tighten(_LATENCIES_S[0])
    for index in range(queued):
        message = Data(actor_address("bench", "relay"), 0, "", 0, Lane.INPUT, index, 0, 0)
        queue.push(message, now + rng.uniform(0.0, 10.0), _SERVICE_S)
    dues = [now + rng.uniform(0.0, 10.0) for _ in range(tests)]
    outlook = queue.precise_outlook
    outlook(now, now)  # which builds what it looks at
    begin = process_time()
    for due in dues:
        outlook(due, now)
    return (process_time() - begin) / tests * 1e6


# --- the jobs ----------------------------------------------------------------------------------------------------------


def _jobs() -> tuple[Directory, list[Address]]:
    """Relays of several jobs with an objective each, all at worker 0, and their targets."""
    directory, relays = Directory(), []
    for number, latency_s in enumerate(_LATENCIES_S):
        specs = []
        job = JobProperties(f"job{number}", f"job{number}", Objective(latency_s))
        for index in range(_ACTORS):
            relay = actor_address(job.id, "relay", index)
            relays.append(relay)
            specs += [_relay_spec(relay, job), sum_spec(_target_of(relay), 0, relay)]
        directory.add_job(specs)
    return directory, relays


def _relay_spec(relay: Address, job: JobProperties) -> FunctionSpec:
    target = _target_of(relay)
    return FunctionSpec(
        relay,
        0,
        lambda _: BenchRelay(target),
        no_states,
        (_source_of(relay),),
        (target,),
        lessees_max=0,
        job=job,
    )


def _target_of(relay: Address) -> Address:
    return relay.replace("/relay/", "/target/")


def _source_of(relay: Address) -> Address:
    return relay.replace("/relay/", "/source/")
