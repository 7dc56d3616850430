"""The five hooks in the path of every message, as the kernel calls them, and what a strategy may ask of its worker.

The strategies themselves, and the base class to write one, are in ``dirigo.scheduling``; the kernel knows this shape only.
"""

from __future__ import annotations

from typing import Any, Protocol

from dirigo.kernel.address import Address, WorkerId
from dirigo.kernel.function import FunctionSpec
from dirigo.kernel.mailbox import MailboxState, Role
from dirigo.kernel.message import CriticalOutput, Executable, Output


class SchedulingContext(Protocol):
    """The worker, as its strategy sees it: facts it can read, and two barriers it can start."""

    @property
    def id(self) -> WorkerId: ...

    @property
    def now(self) -> float:
        """The host's clock, in seconds; the kernel has none of its own."""

    def spec(self, address: Address) -> FunctionSpec: ...

    def role(self, address: Address) -> Role: ...

    def mailbox_state(self, address: Address) -> MailboxState: ...

    def may_forward(self, message: Executable, worker: WorkerId) -> bool:
        """Whether ``enqueue`` may answer with this worker for this message."""

    def may_run(self, message: Executable) -> bool:
        """Whether the protocol lets this message run now."""

    def lessees(self, address: Address) -> frozenset[WorkerId]:
        """The workers that hold a lease of an actor whose lessor is here."""

    def open_channels(self, sender: Address, to: Address) -> frozenset[WorkerId]:
        """The lessees of ``to`` that the local instance of ``sender`` may send to at once."""

    def state_bytes(self, address: Address) -> int: ...

    def run_alone(self, address: Address, payload: Any) -> None:
        """Inject a critical message: a barrier of a local lessor on itself."""

    def scale_in(self, address: Address) -> None:
        """End all leases of a local lessor, after everything its lessees still have to do."""


class Hooks(Protocol):
    """A strategy. It keeps the messages that wait on this worker in whatever structure suits it."""

    def enqueue(self, context: SchedulingContext, message: Executable) -> WorkerId | None:
        """A message may run. None: it is kept here. A worker id: send it there (from a lessee, only back to the lessor)."""

    def get_next_message(self, context: SchedulingContext) -> Executable | None:
        """The message to run next over all functions of all jobs here, removed from what is kept; None if there is none."""

    def pre_apply(self, context: SchedulingContext, message: Executable) -> None: ...

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        """Where an output goes: None for the lessor of its target, or the worker of a lessee.

        Called for critical outputs too, when their program leaves; those go to the lessor whatever is answered.
        """

    def post_apply(self, context: SchedulingContext, message: Executable, elapsed_s: float) -> None: ...


class Observer(Protocol):
    """Told of what happens, for checkers and timelines. Absent by default, and then it costs one comparison."""

    def emitted(self, sender: Address, worker: WorkerId, output: Output | CriticalOutput) -> None: ...

    def withheld(self, sender: Address, worker: WorkerId, outputs: tuple[Output | CriticalOutput, ...]) -> None: ...

    def started(self, worker: WorkerId, message: Executable) -> None: ...

    def executed(self, worker: WorkerId, message: Executable) -> None: ...

    def moved(self, address: Address, worker: WorkerId, row: Any) -> None: ...
