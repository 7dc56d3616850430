"""What lessor and lessee have in common: a mailbox, states, and the way of a message from its arrival to its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import force_setattr

from dirigo.kernel.interface.address import WorkerId
from dirigo.kernel.interface.errand import Errand, ErrandKind
from dirigo.kernel.interface.function import Behaviour, Context, FunctionSpec
from dirigo.kernel.interface.message import CriticalOutput, Data, Output, RunnableMessage, Trail
from dirigo.kernel.mailbox import ADMIT, NEXT_STATE, Event, MailboxState, MessageKind, Role, Verdict
from dirigo.kernel.participant import Participant

if TYPE_CHECKING:
    from dirigo.kernel.worker import Worker

_RUNNABLE, _CRITICAL = MailboxState.RUNNABLE, MailboxState.CRITICAL


class Instance(Participant):
    """An actor at one worker. The function object comes with the first message to run and goes when it idles."""

    __slots__ = (
        "context",
        "function",
        "held",
        "round_began",
        "running",
        "size_bytes",
        "spec",
        "state",
        "states",
        "timers",
        "withholding",
    )

    role: ClassVar[Role]

    def __init__(self, host: Worker, spec: FunctionSpec) -> None:
        super().__init__(host, spec.address, spec.downstreams)
        self.spec = spec
        self.state = MailboxState.RUNNABLE
        self.states = spec.states()
        self.context = Context(spec.address, self.states)
        self.function: Behaviour | None = None
        self.running: RunnableMessage | None = None
        self.size_bytes = 0  # of the states when they were last looked at
        self.held: list[Data] = []  # the blocked queue
        self.round_began: float | None = None  # since when a barrier waits
        self.timers: list[tuple[float, Any]] = []  # (due time, payload), part of the instance's partial state
        self.withholding = False  # a critical output of this instance waits for a barrier, and later outputs behind it

    # --- the mailbox ---------------------------------------------------------------------------------------------------

    def enter(self, event: Event) -> None:
        """Move along the one row of the table for this event."""
        row = NEXT_STATE.get((self.role, self.state, event))
        if row is None:
            raise self.error("table", f"in {self.state.value} there is no transition for '{event.value}'")
        self.state = row.target
        self.tell(row)
        if self.host.observer is not None:
            self.host.observer.moved(self.address, self.worker, row)

    def admit(self, message: Data, kind: MessageKind) -> None:
        """Do with a message what the table says for its kind in the present state."""
        row = ADMIT.get((self.role, self.state, kind))
        if row is None:
            raise self.error("table", f"in {self.state.value} no message that is '{kind.value}' can come, but {message} did")
        if self.host.observer is not None:
            self.host.observer.moved(self.address, self.worker, row)
        if row.verdict is Verdict.HOLD:
            self.held.append(message)
        else:
            self.offer(message)

    def offer(self, message: Data) -> None:
        """Let the strategy keep a message that may run, or send it elsewhere."""
        worker = self.host.strategy.enqueue(self.host, message)
        if worker is not None:
            self.forward(message, worker)

    def may_run(self, message: RunnableMessage) -> bool:
        """Whether a message that the strategy kept may run in the present state."""
        row = ADMIT.get((self.role, self.state, self.kind_of(message)))
        return row is not None and row.verdict is not Verdict.HOLD

    def kind_of(self, message: RunnableMessage) -> MessageKind:
        """The kind of a message that the strategy has been offered; pending ones never are."""
        raise NotImplementedError

    def may_forward(self, message: RunnableMessage, worker: WorkerId) -> bool:
        raise NotImplementedError

    def begin_round(self) -> None:
        """A barrier waits for what this instance has to do: the strategy may want to hurry."""
        self.round_began = self.host.now
        self.host.extras.note_barrier(self.host, self.address)

    def is_awaited(self, message: RunnableMessage) -> bool:  # noqa: ARG002
        """Whether the barrier under way waits for a message that the strategy keeps: at a lessee it does for all."""
        return self.round_began is not None

    def forward(self, message: Data, worker: WorkerId) -> None:
        raise NotImplementedError

    def may_register(self) -> bool:
        return self.state is MailboxState.RUNNABLE

    def handle_states(self, kind: ErrandKind, work: Callable[[], Any], done: Callable[[Any], None]) -> bool:
        """Do something with the states that may run user code; False if the host does it later, where user code runs."""
        defer = self.host.defer
        if defer is not None and defer(Errand(self, kind, work, done)):
            return False
        done(work())
        return True

    # --- executions ----------------------------------------------------------------------------------------------------

    def begin(self, message: RunnableMessage) -> None:
        self.running = message
        context = self.context
        context.created = message.created
        context.deadline = message.deadline
        context.now = self.host.now
        context.trail = self.trail_of(message)

    def trail_of(self, message: RunnableMessage) -> Trail:
        """Where the time of a message went, up to now: it has waited in a queue since it was ready."""
        hop, held, queued, ran = message.trail
        ready = message.ready
        if not message.critical:
            hop += ready - message.sent
        return (hop, held, queued + self.host.now - ready, ran)

    def note_queued(self, message: Data) -> None:
        """A message was chosen to run but the protocol holds it: up to now it has waited in a queue."""
        force_setattr(message, "trail", self.trail_of(message))
        force_setattr(message, "sent", self.host.now)
        force_setattr(message, "ready", self.host.now)

    def note_held(self, message: Data) -> None:
        """A message that the protocol held may run now: it has waited for a barrier."""
        now = self.host.now
        hop, held, queued, ran = message.trail
        force_setattr(message, "trail", (hop + message.ready - message.sent, held + now - message.ready, queued, ran))
        force_setattr(message, "sent", now)
        force_setattr(message, "ready", now)

    def executed(self, message: RunnableMessage, elapsed_s: float = 0.0) -> None:
        """The function has returned: send its outputs, count the message as done, see what that makes possible."""
        context = self.context
        hop, held, queued, ran = context.trail
        context.trail = (hop, held, queued, ran + elapsed_s)
        if context.outputs:
            outputs, context.outputs = context.outputs, []
            self.release(outputs)
        if context.timers:
            timers, context.timers = context.timers, ()
            self.add_timers(timers)
        self.count_as_done(message)
        self.running = None
        if self.state is not _RUNNABLE:
            self.settle()

    def count_as_done(self, message: RunnableMessage) -> None:
        raise NotImplementedError

    def release(self, outputs: list[Output | CriticalOutput]) -> None:
        """Send outputs in the order in which they were emitted.

        A critical output may leave a SEQUENTIAL actor only, so it waits for a barrier of the actor on itself. Everything
        that this instance emits later, in this execution or in another one, waits behind it.
        """
        emit = self.outbox.emit
        trail, now = self.context.trail, self.host.now
        intended: list[Output | CriticalOutput] = []
        for output in outputs:
            force_setattr(output, "trail", trail)
            force_setattr(output, "sent", now)
            if output.critical:
                intended.append(output)
                # Running alone is not an output: what it emits comes when it runs, after all that was emitted before.
                self.withholding = self.withholding or output.to != self.address
            elif self.withholding:
                intended.append(output)
            else:
                emit(output)
        if intended:
            self.intend(tuple(intended))

    def add_timers(self, timers: tuple[tuple[float, Any], ...]) -> None:
        if timers:
            self.timers.extend(timers)
            self.host.timed.add(self.address)

    def take_timers(self) -> tuple[tuple[float, Any], ...]:
        timers, self.timers = tuple(self.timers), []
        self.host.timed.discard(self.address)
        return timers

    def fire_timers(self, now: float) -> None:
        """Turn the timers that are due into barriers of the actor on itself, the earliest first."""
        due = sorted((timer for timer in self.timers if timer[0] <= now), key=lambda timer: timer[0])
        if not due:
            return
        self.timers = [timer for timer in self.timers if timer[0] > now]
        if not self.timers:
            self.host.timed.discard(self.address)
        deadline = now + self.spec.job.objective.latency_s
        self.intend(
            tuple(CriticalOutput(self.address, payload, created=now, deadline=deadline, sent=now) for _, payload in due)
        )

    def intend(self, outputs: tuple[Output | CriticalOutput, ...]) -> None:
        """Have these outputs sent, and what is addressed to the actor itself run, by the lessor in CRITICAL."""
        raise NotImplementedError
