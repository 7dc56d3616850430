"""The five hooks in the path of every message, as the kernel calls them; what else a strategy may be asked, or ask.

The strategies themselves, and the base class to write one, are in ``dirigo.scheduling``; the kernel knows this shape only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from dirigo.kernel.interface.address import Address, WorkerId
from dirigo.kernel.interface.function import FunctionSpec
from dirigo.kernel.interface.job_properties import JobProperties
from dirigo.kernel.interface.message import CriticalOutput, Data, Granularity, Output, RunnableMessage
from dirigo.kernel.mailbox import MailboxState, Role


class Chance(Protocol):
    """Where a strategy's randomness comes from; ``random.Random`` is one."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


class NoChance:
    """Always the first: for hosts that hand in no other."""

    def random(self) -> float:
        return 0.0

    def randrange(self, _stop: int, /) -> int:
        return 0


class SchedulingContext(Protocol):
    """The worker, as its strategy sees it: facts it can read, and three kinds of barriers it can start."""

    @property
    def id(self) -> WorkerId: ...

    @property
    def now(self) -> float:
        """The host's clock, in seconds; the kernel has none of its own."""

    @property
    def rng(self) -> Chance:
        """Chance, handed in by the host so that a simulation repeats itself."""

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        """All workers of the pool, this one included, in order."""

    def load(self, worker: WorkerId) -> tuple[float, float]:
        """Seconds of work waiting at another worker, (urgent, in all), as far as it was heard of; see ``backlog_s``."""

    def add_load(self, worker: WorkerId, seconds: float) -> None:
        """Reckon with more work at another worker than it knows of yet: it is being sent there."""

    def rows(self, message: RunnableMessage) -> int:
        """How many rows a message carries, as far as the host can tell without reading them."""

    def spec(self, address: Address) -> FunctionSpec: ...

    def job(self, message: RunnableMessage | Output | CriticalOutput) -> JobProperties:
        """The job that a message or an output belongs to. Of an actor it is ``spec(actor).job``."""

    def role(self, address: Address) -> Role: ...

    def mailbox_state(self, address: Address) -> MailboxState: ...

    def may_forward(self, message: RunnableMessage, worker: WorkerId) -> bool:
        """Whether ``enqueue`` may answer with this worker for this message."""

    def may_run(self, message: RunnableMessage) -> bool:
        """Whether the protocol lets this message run now."""

    def is_awaited(self, message: RunnableMessage) -> bool:
        """Whether a barrier under way waits for this very message; others of its actor may run meanwhile, or later."""

    def barrier_began(self, address: Address) -> float | None:
        """Since when a barrier waits for what an actor has to do here; None if none does."""

    def lessees(self, address: Address) -> frozenset[WorkerId]:
        """The workers that hold a lease of an actor whose lessor is here."""

    def open_channels(self, sender: Address, to: Address) -> frozenset[WorkerId]:
        """The lessees of ``to`` that the local instance of ``sender`` may send to at once."""

    def state_bytes(self, address: Address) -> int: ...

    def run_alone(self, address: Address, payload: Any) -> None:
        """Inject a critical message: a barrier of a local lessor on itself, which cuts no upstream actor."""

    def send_critical(
        self, sender: Address, to: Address, payload: Any, granularity: Granularity = Granularity.CHANNEL
    ) -> None:
        """Inject a critical message from a local lessor or source to an actor downstream.

        SYNC_CHANNEL cuts the sender alone. SYNC_ONE cuts all upstream actors of ``to``: it waits until each of them that has
        not ended has sent as many, so the strategies at all of their homes have to send one. Nothing is sent after the
        sender's end.
        """

    def scale_in(self, address: Address) -> None:
        """End all leases of a local lessor, after everything its lessees still have to do."""

    def tell_sender(self, message: Data, note: Any) -> None:
        """Send a note, any plain value, to the strategy of the worker that sent a message here directly."""


class Hooks(Protocol):
    """A strategy. It keeps the messages that wait on this worker in whatever structure suits it."""

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        """A message may run. None: it is kept here. A worker id: send it there (from a lessee, only back to the lessor)."""

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        """The message to run next over all functions of all jobs here, removed from what is kept; None if there is none."""

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None: ...

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        """Where an output goes: None for the lessor of its target, or the worker of a lessee.

        Called for critical outputs too, when their program leaves; those go to the lessor whatever is answered.
        """

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None: ...


class StrategyExtras:
    """What a strategy may also be asked or told, beside the five hooks. It is optional: derive from this class too."""

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:  # noqa: ARG002
        """Lessees of ``to`` that ``sender`` will send to as well: a registration is about to leave that can ask for all."""
        return ()

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[RunnableMessage]:  # noqa: ARG002
        """A barrier of ``actor``, whose home is here, is over: the messages that should go through ``enqueue`` again.

        While it lasted, nothing could be forwarded. What is returned is no longer kept. It must have come from upstream:
        not critical, nor handed back by a lessee.
        """
        return ()

    def note_barrier(self, context: SchedulingContext, actor: Address) -> None:
        """A barrier waits from now on for what an actor has to do here, and what follows it waits for the barrier."""

    def note_received(self, context: SchedulingContext, actor: Address, worker: WorkerId, note: Any) -> None:
        """The strategy at ``worker`` has called ``tell_sender`` for a message to ``actor`` that came from here."""

    def wake_at(self) -> float | None:
        """When ``wake`` is to be called though no message comes; None for never."""
        return None

    def wake(self, context: SchedulingContext) -> None:
        """The time of ``wake_at`` has come."""

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:  # noqa: ARG002
        """Seconds of work that wait here, (due within a second, in all); other workers are told."""
        return (0.0, 0.0)

    def forget_job(self, job: str) -> None:
        """A job is gone. Messages of it that are still kept are skipped when they are returned."""


NO_EXTRAS = StrategyExtras()


class Observer(Protocol):
    """Told of what happens, for checkers and timelines. Absent by default, and then it costs one comparison."""

    def emitted(self, sender: Address, worker: WorkerId, output: Output | CriticalOutput) -> None: ...

    def started(self, worker: WorkerId, message: RunnableMessage) -> None: ...

    def executed(self, worker: WorkerId, message: RunnableMessage) -> None: ...

    def moved(self, address: Address, worker: WorkerId, row: Any) -> None: ...
