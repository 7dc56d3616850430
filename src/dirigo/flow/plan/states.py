"""The states of one instance of a stage: how far time has come, and what its operator keeps.

Time is known to the lessor channel by channel; a lessee knows the minimum, which comes to it with the view that the kernel
hands out at the end of each round. So a row that is late is late wherever it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from dirigo.flow.errors import OperatorFailure, said
from dirigo.flow.event_time.watermark import BEGINNING, ChannelWatermarks
from dirigo.flow.rows.held_bytes import held_bytes
from dirigo.kernel import Address, ErrandKind, States

T = TypeVar("T")


class OperatorStates(States, Protocol):
    """What an operator keeps at one instance."""

    def held_bytes(self) -> int:
        """About how much memory it takes, whereas ``size_bytes`` is what would have to be moved."""


class StageStates:
    """What the kernel moves for a stage. Only ``own`` has partial values; time belongs to the lessor."""

    __slots__ = ("_operator", "own", "progress", "watermark")

    def __init__(self, upstreams: Iterable[Address], own: OperatorStates, operator: str) -> None:
        self._operator = operator
        self.own = own
        self.progress = ChannelWatermarks(upstreams)
        self.watermark = BEGINNING  # as far as this instance knows

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


class Kept(Generic[T]):
    """What an ordered operator keeps: it runs at its lessor only, so there is never a second part to merge."""

    __slots__ = ("_fresh", "_measure", "value")

    def __init__(self, fresh: Callable[[], T], measure: Callable[[T], int] = held_bytes) -> None:
        self._fresh = fresh
        self._measure = measure
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
