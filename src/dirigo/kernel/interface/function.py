"""What the kernel knows of user code: a function, the context it runs in, its states, and the graph it belongs to.

The kernel never looks into a payload or a state; it moves them. The protocols here are all that it asks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dirigo.kernel.interface.address import Address, WorkerId, job_of
from dirigo.kernel.interface.errors import GraphError
from dirigo.kernel.interface.job_properties import JobProperties
from dirigo.kernel.interface.message import NO_DEADLINE, NO_TRAIL, CriticalOutput, CriticalRun, Granularity, Output

LESSEES_MAX = 64  # of an actor that says nothing else
_OF_ITS_ADDRESS = JobProperties("", "")


class States(Protocol):
    """The managed states of one instance: own partial values and, at a lessee, a read-only base."""

    def take(self) -> Any:
        """Move the partial values out; afterwards the instance is at the identity."""

    def merge(self, partial: Any) -> None:
        """Combine another instance's partial values into the own ones."""

    def is_identity(self) -> bool: ...

    def size_bytes(self) -> int: ...

    def view(self) -> Any | None:
        """A copy of the replicated states, or None where no state is replicated."""

    def install_view(self, view: Any) -> None: ...


class Context:
    """What a function sees while one message runs: its states, and a place for its outputs."""

    __slots__ = ("address", "captured", "created", "deadline", "now", "outputs", "states", "timers", "trail")

    def __init__(self, address: Address, states: States) -> None:
        self.address = address
        self.states = states
        self.outputs: list[Output | CriticalOutput] = []
        self.timers: tuple[tuple[float, Any], ...] = ()
        self.created = 0.0
        self.deadline = NO_DEADLINE
        self.now = 0.0  # the host's clock when the message was chosen to run
        self.trail = NO_TRAIL  # where the time of the message that runs went, before it ran
        self.captured: Any = None  # what the function keeps of itself for a snapshot; the host takes it from here

    def emit(self, to: Address, payload: Any) -> None:
        """Send a regular message to an actor."""
        self.outputs.append(Output(to, payload, self.created, self.deadline))

    def emit_critical(
        self,
        to: Address,
        payload: Any,
        *,
        granularity: Granularity = Granularity.CHANNEL,
        final: bool = False,
    ) -> None:
        """Send a critical message: all that this instance sent to ``to`` before runs before it, all that follows after it.

        The nth SYNC_ONE that each upstream actor sends to ``to`` is one barrier, and so is the nth snapshot.
        """
        if final and granularity is Granularity.SNAPSHOT:
            raise ValueError("a snapshot ends nothing; send the end with another granularity")
        if to == self.address and (final or granularity is not Granularity.CHANNEL):
            raise ValueError("a critical message of an actor to itself has no granularity and no end; use run_alone")
        self.outputs.append(CriticalOutput(to, payload, granularity, final, self.created, self.deadline))

    def run_alone(self, payload: Any) -> None:
        """Have ``on_critical`` of this very actor run with the whole state: a barrier of the actor on itself."""
        self.emit_critical(self.address, payload)

    def set_timer(self, due: float, payload: Any) -> None:
        """Have ``on_critical`` of this actor run with the whole state once the host's clock has reached ``due``."""
        self.timers += ((due, payload),)


class Behaviour(Protocol):
    """User code. It keeps nothing between calls except in its states: an idle function object is thrown away."""

    def on_message(self, context: Context, payload: Any) -> None: ...

    def on_critical(self, context: Context, critical: CriticalRun) -> None: ...


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One actor of a job's graph, as every worker knows it."""

    address: Address
    home: WorkerId
    behaviour: Callable[[States], Behaviour]
    states: Callable[[], States]
    upstreams: tuple[Address, ...] = ()
    downstreams: tuple[Address, ...] = ()
    ordered: bool = False  # its messages run at the lessor only, in id order per channel
    lessees_max: int = LESSEES_MAX  # 0: it runs at its home only
    job: JobProperties = _OF_ITS_ADDRESS

    def __post_init__(self) -> None:
        if self.job is _OF_ITS_ADDRESS:
            name = job_of(self.address)
            object.__setattr__(self, "job", JobProperties(name, name))

    @property
    def decomposable(self) -> bool:
        """Whether instances at several workers may share its messages, since their partial states can be combined."""
        return not self.ordered


class Directory:
    """The actors of all jobs, and where their lessors live. The same on every worker."""

    def __init__(self) -> None:
        self._specs: dict[Address, FunctionSpec] = {}

    def add_job(self, specs: Iterable[FunctionSpec]) -> None:
        """Make a job's actors known, after checking that its graph is sound."""
        job: dict[Address, FunctionSpec] = {}
        for spec in specs:
            if spec.address in job or spec.address in self._specs:
                raise GraphError(f"there are two actors with the address {spec.address}; give them names of their own")
            job[spec.address] = spec
        _check_edges(job)
        _check_acyclic(job)
        self._specs.update(job)

    def remove_job(self, job: str) -> None:
        for address in [address for address in self._specs if job_of(address) == job]:
            del self._specs[address]

    def __getitem__(self, address: Address) -> FunctionSpec:
        try:
            return self._specs[address]
        except KeyError:
            raise GraphError(f"no job here has an actor {address!r}; submit the job before sending to it") from None

    def __contains__(self, address: Address) -> bool:
        return address in self._specs

    def __iter__(self) -> Iterator[FunctionSpec]:
        return iter(self._specs.values())


def _check_edges(job: Mapping[Address, FunctionSpec]) -> None:
    upstreams = {address: frozenset(spec.upstreams) for address, spec in job.items()}
    downstreams = {address: frozenset(spec.downstreams) for address, spec in job.items()}
    for spec in job.values():
        for downstream in spec.downstreams:
            if downstream not in job:
                raise GraphError(f"{spec.address} sends to {downstream}, which is not part of the job")
            if spec.address not in upstreams[downstream]:
                raise GraphError(f"{spec.address} sends to {downstream}, which does not name it as an upstream")
        for upstream in spec.upstreams:
            if upstream in job and spec.address not in downstreams[upstream]:
                raise GraphError(f"{spec.address} names {upstream} as an upstream, which does not send to it")


def _check_acyclic(job: Mapping[Address, FunctionSpec]) -> None:
    done: set[Address] = set()
    for start in job:
        path: list[Address] = []
        on_path: set[Address] = set()
        stack: list[tuple[Address, int]] = [(start, 0)]
        while stack:
            address, index = stack.pop()
            if index == 0:
                if address in done:
                    continue
                if address in on_path:
                    cycle = [*path[path.index(address) :], address]
                    raise GraphError(f"the graph has a cycle: {' -> '.join(cycle)}; a job must be acyclic")
                path.append(address)
                on_path.add(address)
            downstreams = job[address].downstreams
            if index < len(downstreams):
                stack.append((address, index + 1))
                stack.append((downstreams[index], 0))
            else:
                path.pop()
                on_path.discard(address)
                done.add(address)
