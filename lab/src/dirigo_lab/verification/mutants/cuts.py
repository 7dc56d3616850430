"""Mistakes with cuts: which messages precede a barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dirigo.kernel.barrier import Upstream, WaitingProgram
from dirigo.kernel.channel import Inbound
from dirigo.kernel.interface.message import SyncRequest
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.outbox import Outbox, Route
from dirigo_lab.verification.mutants.mutant import mutant


@mutant("data-taken-twice", "a message that comes twice runs twice", Inbound, "admit", "twice")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Inbound, seq: int) -> bool:
        original(self, seq)
        return True

    return mistaken


@mutant("ignore-payload", "the dependency payload is not read", WaitingProgram, "__init__", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: WaitingProgram, message: Any, arrived: float = 0.0) -> None:
        original(self, message, arrived)
        self.at_home, self.at_lessees = {}, {}

    return mistaken


@mutant("cut-off-by-one", "drained when all but the last dependency is done", Upstream, "head_is_drained", "fork", "overlap")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: all(self.channel(o).done >= cut - 1 for o, cut in self.programs[0].at_home.items())


@mutant("last-is-pending", "'<' for '<=': the last dependency counts as pending", Upstream, "is_pending", "fork", "overlap")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, origin, seq: bool(self.programs) and seq >= self.head_cut(origin)


@mutant("nothing-pending", "no message is ever pending", Upstream, "is_pending", "fork", "two-sync-ones")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, origin, seq: False


@mutant(
    "unnamed-is-uncut", "a channel that the payload does not name is not cut", Upstream, "head_cut", "no-lessee", "chain"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, origin: self.programs[0].at_home.get(origin, 1 << 30)


@mutant("forget-forward-cut", "SYNC_REQUEST does not name the last forward", Lessor, "_start_round", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> bool:
        forwarded, self.leases.forwarded = self.leases.forwarded, {}
        try:
            return bool(original(self))
        finally:
            self.leases.forwarded = forwarded

    return mistaken


@mutant(
    "unknown-is-flushed", "a channel with no entry yet counts as flushed", Lessee, "_is_drained", "two-barriers", "scale-in"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee) -> bool:
        request = self.request
        assert request is not None
        cuts = tuple(cut for cut in request.cuts if cut[:2] in self.direct)
        self.request = SyncRequest(*(request.to, request.worker, request.origin, request.round, request.forwards, cuts))
        try:
            return bool(original(self))
        finally:
            self.request = request

    return mistaken


@mutant(
    "ids-to-first-target", "ids collected for all targets go with the first program", Outbox, "_take_dependencies", "fork"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, route: Route) -> Any:
        taken = original(self, route)
        for other in self.routes.values():
            other.collected = {}
        return taken

    return mistaken


@mutant("forget-swallowed-ids", "ids are dropped after a barrier that goes no further", Lessor, "_end_round", "swallowed")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> Any:
        for route in self.outbox.routes.values():
            route.collected = {}
        return original(self)

    return mistaken
