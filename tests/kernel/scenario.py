"""The language of the kernel's scenario tests: one worker, what it receives, what it runs, and exactly what it sends.

    source S (w10) --+                      +--> D (w5)
                     +--> A (w1) -----------+                    w2, w3 and w4 have no actor of their own
    source T (w11) --+                      +--> E (w6)
                     +--> B (w7)

A scenario reads like a script:

    stage = Stage()
    stage.receives(row("a", 1), program(1, "W", cut=((10, 1, 1),))).sends(program_ack(1))
    stage.runs("a", "W").sends(critical_ack(1))

Payloads are words. ``says`` tells what A puts out when it meets a word; ``steering`` tells where the strategy sends it.
The builders below do nothing but fill in the usual fields of a message.
"""

from collections.abc import Callable, Mapping
from typing import cast

from dirigo.kernel import (
    Address,
    Behaviour,
    Context,
    CriticalOutput,
    CriticalRun,
    Data,
    Directory,
    FunctionSpec,
    Granularity,
    Hooks,
    Lane,
    MailboxState,
    Message,
    Output,
    RunnableMessage,
    SchedulingContext,
    SourceActor,
    States,
    Worker,
    WorkerId,
    actor_address,
)
from dirigo.kernel.instance import Instance
from dirigo.kernel.interface.message import (
    Critical,
    CriticalAck,
    Grant,
    Intent,
    ProgramAck,
    Registration,
    Revoke,
    RevokeAck,
    SyncProgram,
    SyncReply,
    SyncRequest,
    SyncRequestAck,
    Unsync,
    View,
)
from dirigo.scheduling import Strategy, StrategyExtras
from dirigo.state import ListState, Partial, StateSet, bind, declared_states
from dirigo.state import StateView as StateView

S, T = actor_address("job", "s"), actor_address("job", "t")
A, B = actor_address("job", "a"), actor_address("job", "b")
D, E = actor_address("job", "d"), actor_address("job", "e")
AT: dict[Address, WorkerId] = {A: 1, D: 5, E: 6, B: 7, S: 10, T: 11}
HOME = AT[A]
UPSTREAMS: dict[Address, tuple[Address, ...]] = {A: (S, T), B: (S, T), D: (A,), E: (A,)}
DOWNSTREAMS: dict[Address, tuple[Address, ...]] = {A: (D, E), B: (), D: (), E: ()}

AnyOutput = Output | CriticalOutput
Says = Mapping[str, tuple[AnyOutput, ...]]


# --- who acts ----------------------------------------------------------------------------------------------------------


class Recorder:
    """Keeps every word that it meets, and puts out what the script says for that word."""

    seen = ListState(str)

    def __init__(self, states: States, says: Says) -> None:
        bind(self, cast(StateSet, states))
        self.says = says

    def on_message(self, context: Context, payload: str) -> None:
        self._meet(context, payload)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        self._meet(context, critical.payload)

    def _meet(self, context: Context, word: str) -> None:
        self.seen.append(word)
        for output in self.says.get(word, ()):
            if output.critical and output.to == context.address:
                context.run_alone(output.payload)
            elif isinstance(output, CriticalOutput):
                context.emit_critical(
                    output.to,
                    output.payload,
                    granularity=output.granularity,
                    final=output.final,
                )
            else:
                context.emit(output.to, output.payload)


class Sharing(Recorder):
    """The same, and its lessees can read what the lessor has."""

    seen = ListState(str, replicated=True)


class Steered(Strategy, StrategyExtras):
    """First in, first out; what is to go elsewhere is set by the test, word by word."""

    def __init__(self) -> None:
        self.elsewhere: dict[str, WorkerId] = {}  # what enqueue answers, once
        self.direct: dict[str, WorkerId] = {}  # what prepare_send answers
        self.also: tuple[WorkerId, ...] = ()  # what also_wanted answers
        self.given: set[str] = set()  # what give_back answers, if it is kept
        self.kept: list[RunnableMessage] = []
        self.offered: list[str] = []

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        self.offered.append(message.payload)
        worker = self.elsewhere.pop(message.payload, None)
        if worker is None:
            self.kept.append(message)
        return worker

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return self.kept.pop(0) if self.kept else None

    def prepare_send(self, context: SchedulingContext, sender: Address, output: AnyOutput) -> WorkerId | None:
        return self.direct.get(output.payload)

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> tuple[WorkerId, ...]:
        return self.also

    def give_back(self, context: SchedulingContext, actor: Address) -> list[RunnableMessage]:
        given = [message for message in self.kept if message.to == actor and message.payload in self.given]
        self.kept = [message for message in self.kept if message not in given]
        return given


class Stage:
    """One worker, and the script of what happens at it."""

    def __init__(
        self,
        worker: WorkerId = HOME,
        *,
        says: Says | None = None,
        strategy: Hooks | None = None,
        shares: bool = False,
        ordered: bool = False,
        lessees_max: int = 64,
    ) -> None:
        self.steering = Steered()
        self.directory = Directory()
        self.directory.add_job(graph(says or {}, shares=shares, ordered=ordered, lessees_max=lessees_max))
        self.worker = Worker(worker, self.directory, strategy or self.steering)

    def source(self, address: Address = S) -> SourceActor:
        return self.worker.add_source(address, (A, B))

    def emits(self, *outputs: AnyOutput, source: Address = S) -> "Stage":
        participant = self.worker.participants[source]
        assert isinstance(participant, SourceActor)
        for output in outputs:
            participant.emit(output)
        return self

    def receives(self, *messages: Message) -> "Stage":
        for message in messages:
            self.worker.receive(message)
        return self

    def runs(self, *words: str) -> "Stage":
        """These words, one after the other, are what the worker chooses to run."""
        for word in words:
            self.starts(word).ends()
        return self

    def starts(self, word: str) -> "Stage":
        message = self.worker.next()
        assert message is not None, f"nothing can run, but {word!r} should"
        assert message.payload == word, f"{message.payload!r} runs instead of {word!r}"
        return self

    def ends(self) -> "Stage":
        self.worker.apply()
        self.worker.finish()
        return self

    def is_idle(self) -> "Stage":
        message = self.worker.next()
        assert message is None, f"{message} runs, but nothing should"
        return self

    def sends(self, *expected: Message) -> "Stage":
        """Exactly these messages have left since the last look, in this order."""
        sent = list(self.worker.outgoing)
        self.worker.outgoing.clear()
        assert sent == list(expected), "\n".join(("sent", *_lines(sent), "instead of", *_lines(expected)))
        return self

    def sends_nothing(self) -> "Stage":
        return self.sends()

    def forgets(self) -> "Stage":
        """What has been sent so far is not the point of this scenario."""
        self.worker.outgoing.clear()
        return self

    def is_in(self, state: MailboxState) -> "Stage":
        assert self.worker.mailbox_state(A) is state, f"A is {self.worker.mailbox_state(A).value}, not {state.value}"
        return self

    def asks(self, request: Callable[[Worker], None]) -> "Stage":
        """The strategy asks the worker for something, outside of any hook."""
        request(self.worker)
        self.worker.do_requests()
        return self

    def instance(self, address: Address = A) -> Instance:
        return self.worker.instance(address)

    def seen(self, address: Address = A) -> list[str]:
        """What the instance's own state holds."""
        return list(cast(StateSet, self.instance(address).states).cell("seen"))

    def told(self, address: Address = A) -> str:
        """The story of a participant here, as an error would tell it."""
        participant = self.worker.participants.get(address)
        return "\n".join(participant.error("", "").story) if participant is not None else ""


def _lines(messages: tuple[Message, ...] | list[Message]) -> list[str]:
    return [f"    {message}" for message in messages] or ["    nothing"]


def graph(says: Says, *, shares: bool = False, ordered: bool = False, lessees_max: int = 64) -> list[FunctionSpec]:
    cls = Sharing if shares else Recorder

    def behaviour(states: States) -> Behaviour:
        return cls(states, says)

    return [
        FunctionSpec(
            address,
            AT[address],
            behaviour,
            lambda: StateSet(declared_states(cls)),
            UPSTREAMS[address],
            DOWNSTREAMS[address],
            ordered,
            lessees_max,
        )
        for address in (A, B, D, E)
    ]


# --- what a function puts out ------------------------------------------------------------------------------------------


def out(to: Address, word: str) -> Output:
    return Output(to, word)


def critical(to: Address, word: str, *, one: bool = False, final: bool = False) -> CriticalOutput:
    """A critical message; ``one`` makes it a part of a SYNC_ONE barrier."""
    return CriticalOutput(to, word, Granularity.ONE if one else Granularity.CHANNEL, final)


# --- data --------------------------------------------------------------------------------------------------------------


def row(
    word: str,
    seq: int,
    *,
    sender: Address = S,
    origin: WorkerId | None = None,
    to: Address = A,
    worker: WorkerId | None = None,
    view: int = 0,
) -> Data:
    """From an upstream instance: its home, unless ``origin`` says otherwise."""
    return Data(to, _at(to, worker), sender, _at(sender, origin), Lane.INPUT, seq, view, word)


def forwarded(word: str, seq: int, worker: WorkerId, *, sender: Address = S, view: int = 0) -> Data:
    """From A's lessor to a lessee."""
    return Data(A, worker, sender, HOME, Lane.FORWARD, seq, view, word)


def handed_back(word: str, seq: int, origin: WorkerId, *, sender: Address = S) -> Data:
    """From a lessee of A to its lessor."""
    return Data(A, HOME, sender, origin, Lane.RETURN, seq, 0, word)


# --- barriers ----------------------------------------------------------------------------------------------------------


def program(
    number: int,
    *words: str,
    sender: Address = S,
    to: Address = A,
    cut: tuple[tuple[WorkerId, WorkerId, int], ...] = (),
    one: int = 0,
    final: bool = False,
) -> SyncProgram:
    return SyncProgram(
        to,
        AT[to],
        sender,
        AT[sender],
        number,
        Granularity.ONE if one else Granularity.CHANNEL,
        one,
        UPSTREAMS[to] if one else (sender,),
        final,
        tuple(Critical(word) for word in words),
        cut,
    )


def program_ack(number: int, *, to: Address = S, by: Address = A) -> ProgramAck:
    return ProgramAck(to, AT[to], by, number)


def critical_ack(number: int, *, to: Address = S, by: Address = A) -> CriticalAck:
    return CriticalAck(to, AT[to], by, number)


def sync_request(
    number: int, worker: WorkerId, *, forwards: int = 0, cuts: tuple[tuple[Address, WorkerId, int], ...] = ()
) -> SyncRequest:
    return SyncRequest(A, worker, HOME, number, forwards, cuts)


def request_ack(number: int, origin: WorkerId) -> SyncRequestAck:
    return SyncRequestAck(A, HOME, origin, number)


def reply(
    number: int,
    origin: WorkerId,
    *words: str,
    sent: tuple[tuple[Address, WorkerId, int], ...] = (),
    returned: int = 0,
) -> SyncReply:
    """A lessee's answer; the words are its partial state."""
    return SyncReply(A, HOME, origin, number, partial(*words), sent, returned)


def unsync(
    number: int,
    worker: WorkerId,
    *,
    closed: tuple[Address, ...] = (),
    lease_ended: bool = True,
    version: int = 0,
    view: StateView | None = None,
) -> Unsync:
    return Unsync(A, worker, HOME, number, closed, lease_ended, version, view)


def new_view(version: int, worker: WorkerId, *words: str) -> View:
    return View(A, worker, HOME, version, view_of(*words))


def intent(seq: int, origin: WorkerId, *outputs: AnyOutput) -> Intent:
    return Intent(A, HOME, origin, seq, outputs)


def partial(*words: str) -> Partial:
    return Partial({"seen": list(words)} if words else {})


def view_of(*words: str) -> StateView:
    return StateView({"seen": list(words)})


def critical_run(word: str, *, number: int = 0, sender: Address = A) -> CriticalRun:
    return CriticalRun(A, HOME, ((sender, number, word),), Granularity.CHANNEL, 0, False)


# --- leases ------------------------------------------------------------------------------------------------------------


def registration(
    number: int, *wanted: WorkerId, sender: Address = S, origin: WorkerId | None = None, to: Address = A
) -> Registration:
    return Registration(to, AT[to], sender, _at(sender, origin), number, wanted)


def grant(
    number: int,
    *workers: WorkerId,
    to: Address = S,
    worker: WorkerId | None = None,
    by: Address = A,
    view: int = 0,
) -> Grant:
    return Grant(to, _at(to, worker), by, number, workers, view)


def revoke(number: int, *, to: Address = S, worker: WorkerId | None = None, by: Address = A) -> Revoke:
    return Revoke(to, _at(to, worker), by, AT[by], number)


def revoke_ack(
    number: int,
    *sent: tuple[WorkerId, int],
    sender: Address = S,
    origin: WorkerId | None = None,
    to: Address = A,
    closed: int = 0,
) -> RevokeAck:
    return RevokeAck(to, AT[to], sender, _at(sender, origin), number, sent, closed)


def _at(address: Address, worker: WorkerId | None) -> WorkerId:
    return AT[address] if worker is None else worker
