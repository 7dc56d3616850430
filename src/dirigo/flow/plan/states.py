"""The states of one instance of a stage: how far time has come, and what its operator keeps.

Time is known to the lessor channel by channel; a lessee knows the minimum, which comes to it with the view that the kernel
hands out at the end of each round. So a row that is late is late wherever it runs.

A capture is what a snapshot keeps of states. It consists of Arrow batches (by reference: they never change), of plain values
(None, booleans, numbers, texts, bytes), of tuples, lists, sets and dicts of all these, of named tuples of Dirigo's own, and
of ``Pickled`` where there may be a user's objects. Later changes of the states do not touch it. So any thread can pickle it
with protocol 5 and buffers apart, which runs no user code, and another process with the same version of Dirigo can read it
and needs no class of the user's. Those are needed when it is restored: then what is ``Pickled`` is opened.

Figures are no states: how many late rows were dropped is counted per process, and so from the last recovery on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from dirigo.flow.errors import CaptureFailure, OperatorFailure, said
from dirigo.flow.event_time.watermark import BEGINNING, END, ChannelProgress, ChannelWatermarks
from dirigo.flow.rows.held_bytes import held_bytes
from dirigo.kernel import Address, ErrandKind, States
from dirigo.state import capture_of, restored

T = TypeVar("T")


class OperatorStates(States, Protocol):
    """What an operator keeps at one instance."""

    def held_bytes(self) -> int:
        """About how much memory it takes, whereas ``size_bytes`` is what would have to be moved."""

    def capture(self) -> Any:
        """What there is, as a capture (see above); None if there is nothing.

        It is called where user code may run, alone, on the whole state. It costs time per batch, and per key where Python
        objects are kept. An exception means that it cannot be kept, and OperatorFailure that the job cannot go on.
        """

    def restore(self, captured: Any) -> None:
        """Be as the states were that were captured. These are new ones. The capture is not changed, and not shared."""


class StageHead(NamedTuple):
    """The small part of a capture, which changes with every watermark."""

    watermark: int
    progress: ChannelProgress
    is_over: bool = False


class StageCapture(NamedTuple):
    """What a snapshot keeps of an actor, but for what the kernel knows of it."""

    head: StageHead
    own: Any  # the operator's; None if there is nothing


class StageStates:
    """What the kernel moves for a stage. Only ``own`` has partial values; time belongs to the lessor."""

    __slots__ = ("_operator", "is_over", "own", "progress", "watermark")

    def __init__(self, upstreams: Iterable[Address], own: OperatorStates, operator: str) -> None:
        self._operator = operator
        self.own = own
        self.progress = ChannelWatermarks(upstreams)
        self.watermark = BEGINNING  # as far as this instance knows
        self.is_over = False  # it had ended before the savepoint that the job began with, and only hears of the end again

    def take(self) -> Any:
        return self.own.take()

    def merge(self, partial: Any) -> None:
        try:
            self.own.merge(partial)
        except Exception as error:  # combining may run user code
            what = f"operator '{self._operator}' failed while {ErrandKind.MERGE.value}: {said(error)}"
            raise OperatorFailure(what) from error

    def is_identity(self) -> bool:
        return self.own.is_identity()

    def size_bytes(self) -> int:
        return self.own.size_bytes()

    def held_bytes(self) -> int:
        return self.own.held_bytes()

    def view(self) -> tuple[int, Any]:
        return (self.watermark, self.own.view())

    def install_view(self, view: tuple[int, Any]) -> None:
        self.watermark, own = view
        if own is not None:
            self.own.install_view(own)

    def capture(self) -> StageCapture:
        """What a snapshot keeps; raises CaptureFailure if the operator's states cannot be kept.

        OperatorFailure says that the states themselves are no longer what they should be.
        """
        try:
            own = self.own.capture()
        except OperatorFailure:
            raise
        except Exception as error:  # pickling may run user code
            what = f"the state of operator '{self._operator}' cannot be kept in a snapshot: {said(error)}"
            raise CaptureFailure(what) from error
        return StageCapture(StageHead(self.watermark, self.progress.capture(), self.is_over), own)

    def restore(self, captured: StageCapture) -> None:
        """Be as the same actor was in another generation; raises OperatorFailure if that cannot be."""
        try:
            self.progress.restore(captured.head.progress)
            self.watermark, self.is_over = captured.head.watermark, captured.head.is_over
            if captured.own is not None:
                self.own.restore(captured.own)
        except Exception as error:  # unpickling may run user code
            what = f"operator '{self._operator}' cannot go on from its state in a snapshot: {said(error)}"
            raise OperatorFailure(what) from error

    def restore_ended(self) -> None:
        """Be as the same actor was in another generation when its input had ended: that is all that matters of it."""
        self.progress.end()
        self.watermark = END


class Nothing:
    """What a stateless operator keeps."""

    def take(self) -> None:
        return None

    def merge(self, partial: None) -> None:
        """There is nothing to merge."""

    def is_identity(self) -> bool:
        return True

    def size_bytes(self) -> int:
        return 0

    def held_bytes(self) -> int:
        return 0

    def view(self) -> None:
        return None

    def install_view(self, view: None) -> None:
        """There is nothing to install."""

    def capture(self) -> None:
        return None

    def restore(self, captured: None) -> None:
        """There is nothing to restore."""


def _captured(container: Any) -> Any:
    return capture_of(container) if container else None


class WholeState(Generic[T]):
    """What an ordered operator keeps: it runs at its lessor only, so there is never a second part to merge."""

    __slots__ = ("_capture", "_fresh", "_measure", "_restored", "value")

    def __init__(
        self,
        fresh: Callable[[], T],
        measure: Callable[[T], int] = held_bytes,
        capture: Callable[[T], Any] = _captured,
        restored: Callable[[Any], T] = restored,
    ) -> None:
        """``capture`` makes a capture of the value, and ``restored`` a value of a capture."""
        self._fresh = fresh
        self._measure = measure
        self._capture = capture
        self._restored = restored
        self.value = fresh()

    def take(self) -> T:
        value, self.value = self.value, self._fresh()
        return value

    def merge(self, partial: T) -> None:
        self.value = partial

    def is_identity(self) -> bool:
        return False

    def size_bytes(self) -> int:
        return self.held_bytes()

    def held_bytes(self) -> int:
        return self._measure(self.value)

    def view(self) -> None:
        return None

    def install_view(self, view: None) -> None:
        """Nobody else reads it."""

    def capture(self) -> Any:
        return self._capture(self.value)

    def restore(self, captured: Any) -> None:
        self.value = self._restored(captured)
