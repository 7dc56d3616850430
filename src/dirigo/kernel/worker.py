"""A worker: the instances of many actors of many jobs, and the path of each message through the five hooks.

The worker is a pure state machine. Its host hands it messages (``receive``), runs what it says is next (``next``, ``apply``,
``finish``), and carries away what it wants sent (``outgoing``). The host may call ``apply`` on another thread: between
``next`` and ``finish`` the kernel touches neither the states nor the context of the running instance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import force_setattr

from dirigo.kernel.instance import Instance
from dirigo.kernel.interface.address import Address, WorkerId, job_of
from dirigo.kernel.interface.errand import Errand
from dirigo.kernel.interface.errors import PolicyError, ProtocolError
from dirigo.kernel.interface.function import Directory, FunctionSpec
from dirigo.kernel.interface.hooks import NO_EXTRAS, Chance, Hooks, NoChance, Observer, StrategyExtras
from dirigo.kernel.interface.job_properties import JobProperties
from dirigo.kernel.interface.kept import Kept
from dirigo.kernel.interface.message import (
    CriticalOutput,
    CriticalRun,
    Data,
    Granularity,
    Message,
    Note,
    Output,
    RunnableMessage,
    Trail,
)
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import MailboxState, Role
from dirigo.kernel.participant import Participant
from dirigo.kernel.source import SourceActor
from dirigo.kernel.wait_reasons import waiting_for
from dirigo.kernel.worker_loads import WorkerLoads

_RUNNABLE = MailboxState.RUNNABLE
_ASKED_AGAIN_MAX = 8  # a strategy that starts something whenever it has nothing to run would be asked for ever


class Worker:
    """All participants at one worker, around one strategy."""

    __slots__ = (
        "_current",
        "_loads",
        "_requests",
        "barriers",
        "defer",
        "directory",
        "extras",
        "id",
        "measure",
        "now",
        "observer",
        "outgoing",
        "participants",
        "rng",
        "rounds",
        "running",
        "strategy",
        "timed",
        "workers",
    )

    def __init__(self, worker_id: WorkerId, directory: Directory, strategy: Hooks) -> None:
        self.id = worker_id
        self.directory = directory
        self.strategy = strategy
        self.extras = strategy if isinstance(strategy, StrategyExtras) else NO_EXTRAS
        self.participants: dict[Address, Participant] = {}
        self.outgoing: list[Message] = []  # the host takes these and clears the list
        self.observer: Observer | None = None
        self.now = 0.0  # set by the host before it calls
        self.running: RunnableMessage | None = None
        self._current: Instance | None = None  # whose message is running
        self.timed: set[Address] = set()  # instances with timers
        self._requests: list[Callable[[], None]] = []  # what the strategy asked for inside a hook
        # What the host knows and the strategy may ask for.
        self.rng: Chance = NoChance()
        self.workers: tuple[WorkerId, ...] = (worker_id,)  # of the whole pool
        self._loads = WorkerLoads()
        self.measure: Callable[[Any], int] = _one_row
        self.barriers: dict[Address, float] = {}  # lessors that a barrier waits at -> since when
        self.defer: Callable[[Errand], bool] | None = None  # takes an errand over, or says that it may be done at once
        self.rounds: dict[str, tuple[int, int]] = {}  # job -> (rounds of its lessors here, those that had lessees)

    # --- for the host --------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """A message has arrived, in any order and possibly more than once."""
        if type(message) is Data:
            force_setattr(message, "ready", self.now)
            (self.participants.get(message.to) or self._activate(message.to)).accept(message)
        elif type(message) is Note:
            self.extras.note_received(self, message.sender, message.origin, message.note)
        else:
            (self.participants.get(message.to) or self._activate(message.to)).handle(message)
        if self._requests:
            self._do_requests()

    def next(self) -> RunnableMessage | None:
        """Choose the message to run; None if nothing can run now. What the protocol blocks meanwhile is held."""
        if self.running is not None:
            raise ProtocolError("one-at-a-time", f"w{self.id}", "it was asked for a message while one is running")
        strategy = self.strategy
        asked_again = 0
        while True:
            message = strategy.get_next_message(self)
            if message is None:
                if not self._requests or asked_again == _ASKED_AGAIN_MAX:
                    return None
                asked_again += 1
                self._do_requests()  # which may have made a message ready
                continue
            instance: Instance | None = self.participants.get(message.to)  # type: ignore[assignment]  # only instances offer messages
            if instance is None:  # its job is gone, and the strategy cannot know
                continue
            if instance.state is _RUNNABLE or instance.may_run(message):
                break
            instance.note_queued(message)  # type: ignore[arg-type]  # a critical message always may run
            instance.held.append(message)  # type: ignore[arg-type]
        self.running = message
        self._current = instance
        instance.begin(message)
        strategy.pre_apply(self, message)
        if self.observer is not None:
            self.observer.started(self.id, message)
        return message

    def apply(self) -> None:
        """Run user code on the message that ``next`` chose. The only method that may be called on another thread."""
        message = self.running
        assert message is not None
        instance = self._current
        assert instance is not None
        function = instance.function
        if function is None:
            function = instance.function = instance.spec.behaviour(instance.states)
        if isinstance(message, CriticalRun):
            function.on_critical(instance.context, message)
        else:
            function.on_message(instance.context, message.payload)

    def finish(self, elapsed_s: float = 0.0) -> Trail:
        """User code has returned: send its outputs and go on with the protocol. Tells where the message's time went."""
        message = self.running
        assert message is not None
        instance = self._current
        assert instance is not None
        self.running = self._current = None
        if self.observer is not None:
            self.observer.executed(self.id, message)
        instance.executed(message, elapsed_s)
        trail = instance.context.trail
        self.strategy.post_apply(self, message, elapsed_s)
        if self._requests:
            self._do_requests()
        return trail

    def abandon(self) -> None:
        """User code will not return properly, so its job is lost: forget the message that ``next`` chose."""
        self.running = self._current = None

    def remove_job(self, job: str) -> None:
        """Forget a job with all it has here. What the strategy still keeps of it is dropped when its turn comes."""
        self.directory.remove_job(job)
        self.extras.forget_job(job)
        self.rounds.pop(job, None)
        for address in [address for address in self.participants if job_of(address) == job]:
            del self.participants[address]
            self.timed.discard(address)
            self.barriers.pop(address, None)
        if self.running is not None and job_of(self.running.to) == job:
            self.abandon()

    def next_timer(self) -> float | None:
        """When the host should call ``fire_timers``; None if no timer is set here."""
        due = min((due for address in self.timed for due, _ in self.instance(address).timers), default=None)
        wake_at = self.extras.wake_at()
        return due if wake_at is None else wake_at if due is None else min(due, wake_at)

    def fire_timers(self) -> None:
        """Start what is due at ``now``."""
        for address in sorted(self.timed):
            self.instance(address).fire_timers(self.now)
        wake_at = self.extras.wake_at()
        if wake_at is not None and wake_at <= self.now:
            self.extras.wake(self)
        self.do_requests()

    def add_source(self, address: Address, downstreams: tuple[Address, ...]) -> SourceActor:
        source = SourceActor(self, address, downstreams)
        self.participants[address] = source
        return source

    def restore(self, address: Address, kept: Kept) -> None:
        """Have an actor whose home is here go on from a snapshot, before anything is received for it.

        Its job is known already, and its states are those of the snapshot: ``instance(address).states`` were filled.
        """
        self.lessor(address).restore(kept)

    def count_round(self, address: Address, has_lessees: bool) -> None:
        job = job_of(address)
        rounds, gathered = self.rounds.get(job, (0, 0))
        self.rounds[job] = (rounds + 1, gathered + has_lessees)

    def waiting(self, longer_than_s: float) -> list[tuple[Address, float, list[str]]]:
        """The lessors here at which a barrier has waited for longer than this: since when, and for whom, in sentences."""
        late = [(address, since) for address, since in self.barriers.items() if self.now - since > longer_than_s]
        return [(address, since, waiting_for(self.lessor(address))) for address, since in late]

    def leased_to(self, workers: Collection[WorkerId]) -> set[str]:
        """The jobs that have something at these workers which only they have, as far as is known here."""
        jobs = set()
        for participant in self.participants.values():
            is_leased = isinstance(participant, Lessor) and participant.has_lessees_among(workers)
            if is_leased or any(not route.open.isdisjoint(workers) for route in participant.outbox.routes.values()):
                jobs.add(job_of(participant.address))
        return jobs

    def passivate(self, address: Address) -> bool:
        """Drop the function object of an idle instance; its states stay, and the next message brings it back."""
        participant = self.participants.get(address)
        if (
            not isinstance(participant, Instance)
            or participant.function is None
            or participant.running is not None
            or participant.held
        ):
            return False
        participant.function = None
        return True

    def _activate(self, address: Address) -> Participant:
        spec = self.directory[address]
        participant = self.participants[address] = Lessor(self, spec) if spec.home == self.id else Lessee(self, spec)
        return participant

    def do_requests(self) -> None:
        """Start what a strategy asked for outside of ``receive``, ``next`` and ``finish``."""
        if self._requests:
            self._do_requests()

    def _do_requests(self) -> None:
        while self._requests:
            self._requests.pop(0)()

    # --- for the strategy ----------------------------------------------------------------------------------------------

    def spec(self, address: Address) -> FunctionSpec:
        return self.directory[address]

    def job(self, message: RunnableMessage | Output | CriticalOutput) -> JobProperties:
        return self.directory[message.to].job

    def instance(self, address: Address) -> Instance:
        participant = self.participants.get(address) or self._activate(address)
        if not isinstance(participant, Instance):
            raise ProtocolError("addressed", participant.name, "it is a source and has no mailbox")
        return participant

    def lessor(self, address: Address) -> Lessor:
        instance = self.instance(address)
        if not isinstance(instance, Lessor):
            raise ProtocolError("addressed", instance.name, f"it is a lessee; the lessor is at w{instance.spec.home}")
        return instance

    def role(self, address: Address) -> Role:
        return Role.LESSOR if self.directory[address].home == self.id else Role.LESSEE

    def mailbox_state(self, address: Address) -> MailboxState:
        participant = self.participants.get(address)
        return participant.state if isinstance(participant, Instance) else MailboxState.RUNNABLE

    def may_forward(self, message: RunnableMessage, worker: WorkerId) -> bool:
        return self.instance(message.to).may_forward(message, worker)

    def may_run(self, message: RunnableMessage) -> bool:
        return self.instance(message.to).may_run(message)

    def lessees(self, address: Address) -> frozenset[WorkerId]:
        return frozenset(self.lessor(address).leases.leased)

    def open_channels(self, sender: Address, to: Address) -> frozenset[WorkerId]:
        participant = self.participants.get(sender)
        return frozenset() if participant is None else frozenset(participant.outbox.route(to).open)

    def is_awaited(self, message: RunnableMessage) -> bool:
        return self.instance(message.to).is_awaited(message)

    def barrier_began(self, address: Address) -> float | None:
        return self.instance(address).round_began

    def state_bytes(self, address: Address) -> int:
        participant = self.participants.get(address)
        if not isinstance(participant, Instance):
            return 0
        if participant.running is None:  # otherwise another thread may be changing them
            participant.size_bytes = participant.states.size_bytes()
        return participant.size_bytes

    def run_alone(self, address: Address, payload: Any) -> None:
        lessor = self.lessor(address)
        deadline = self.now + lessor.spec.job.objective.latency_s
        output = CriticalOutput(address, payload, created=self.now, deadline=deadline, sent=self.now)
        self._requests.append(lambda: lessor.intend((output,)))

    def send_critical(
        self, sender: Address, to: Address, payload: Any, granularity: Granularity = Granularity.CHANNEL
    ) -> None:
        if granularity is Granularity.SNAPSHOT:
            raise PolicyError(f"the strategy at w{self.id} sends a snapshot of {sender}, but only sources begin those")
        participant = self.participants.get(sender)
        participant = participant if isinstance(participant, SourceActor) else self.lessor(sender)
        participant.outbox.route(to)  # raises if there is no such edge
        deadline = self.now + self.directory[to].job.objective.latency_s
        output = CriticalOutput(to, payload, granularity, created=self.now, deadline=deadline, sent=self.now)
        self._requests.append(lambda: participant.inject(output))

    def scale_in(self, address: Address) -> None:
        self._requests.append(self.lessor(address).scale_in)

    def load(self, worker: WorkerId) -> tuple[float, float]:
        return self.extras.backlog_s(self) if worker == self.id else self._loads.of(worker, self.now)

    def add_load(self, worker: WorkerId, seconds: float) -> None:
        self._loads.add(worker, seconds, self.now)

    def note_load(self, worker: WorkerId, load: tuple[float, float]) -> None:
        """For the host: another worker has told how much waits there."""
        self._loads.note(worker, load, self.now)

    def rows(self, message: RunnableMessage) -> int:
        return 1 if message.critical else self.measure(message.payload)

    def tell_sender(self, message: Data, note: Any) -> None:
        self.outgoing.append(Note(message.sender, message.origin, message.to, self.id, note))


def _one_row(_: Any) -> int:
    return 1
