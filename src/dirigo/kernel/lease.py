"""Leases of one lessor: who holds one and why, and the registrations that wait for an answer.

A worker is leased because the lessor forwarded to it, or because an upstream instance was granted to send to it. What was
granted to an upstream actor lasts until the round that executes that actor's next barrier; a forward lasts until the next
round. So after a round exactly those keep their lease that somebody else may still be sending to.
"""

from __future__ import annotations

from collections.abc import Iterable

from dirigo.kernel.channel import Inbound
from dirigo.kernel.interface.address import Address, WorkerId
from dirigo.kernel.interface.message import Registration, RevokeAck

UpstreamInstance = tuple[Address, WorkerId]


class Leases:
    """Bookkeeping only; the lessor decides and sends."""

    __slots__ = (
        "answered",
        "deferred",
        "forwarded",
        "grants",
        "leased",
        "returns",
        "revocation",
        "revoked",
        "revoking",
        "up_to_date",
    )

    def __init__(self) -> None:
        self.leased: set[WorkerId] = set()
        self.forwarded: dict[WorkerId, int] = {}  # the last id on the channel to each lessee
        self.returns: dict[WorkerId, Inbound] = {}  # the channel from each lessee
        self.grants: dict[Address, dict[WorkerId, set[WorkerId]]] = {}  # by upstream actor and its worker
        self.answered: dict[UpstreamInstance, int] = {}  # the number of the last registration seen
        self.deferred: dict[UpstreamInstance, Registration] = {}
        self.revocation = 0  # the number of the last scale-in
        self.revoking: set[UpstreamInstance] | None = None  # who has not acknowledged it yet; None when none is under way
        self.revoked: dict[WorkerId, dict[UpstreamInstance, int]] = {}  # the last ids, by lessee
        self.up_to_date: set[WorkerId] = set()  # workers that know the actor's present view

    def return_channel(self, lessee: WorkerId) -> Inbound:
        channel = self.returns.get(lessee)
        if channel is None:
            channel = self.returns[lessee] = Inbound()
        return channel

    def next_forward(self, lessee: WorkerId) -> int:
        seq = self.forwarded.get(lessee, 0) + 1
        self.forwarded[lessee] = seq
        return seq

    def is_new(self, registration: Registration) -> bool:
        key = (registration.sender, registration.origin)
        if registration.number <= self.answered.get(key, 0):
            return False
        self.answered[key] = registration.number
        return True

    def grant(self, registration: Registration, workers: Iterable[WorkerId]) -> None:
        of_actor = self.grants.setdefault(registration.sender, {})
        of_actor.setdefault(registration.origin, set()).update(workers)

    def granted_to(self, upstream: Address, worker: WorkerId) -> set[WorkerId]:
        return self.grants.get(upstream, {}).get(worker, set())

    def start_revocation(self) -> set[UpstreamInstance]:
        """Who has to acknowledge before all leases can end."""
        self.revocation += 1
        self.revoking = {
            (address, worker) for address, of_actor in self.grants.items() for worker, granted in of_actor.items() if granted
        }
        self.revoked = {}
        return set(self.revoking)

    def acknowledge_revocation(self, ack: RevokeAck) -> bool:
        """Note the last ids of one upstream instance; False for an acknowledgment that nobody waits for."""
        key = (ack.sender, ack.origin)
        if self.revoking is None or ack.number != self.revocation or key not in self.revoking:
            return False
        self.revoking.discard(key)
        # What it asked before it closed its channels is void, whether it is here already or still under way.
        self.answered[key] = max(ack.closed, self.answered.get(key, 0))
        if key in self.deferred and self.deferred[key].number <= ack.closed:
            del self.deferred[key]
        for lessee, seq in ack.sent:
            self.revoked.setdefault(lessee, {})[key] = seq
        return True

    def forget_deferred(self, upstream: Address) -> None:
        for key in [key for key in self.deferred if key[0] == upstream]:
            del self.deferred[key]

    def can_scale_in(self) -> bool:
        return self.revoking is not None and not self.revoking

    def end_grants_of(self, upstream: Address) -> None:
        self.grants.pop(upstream, None)

    def end_revocation(self) -> None:
        self.revoking = None
        self.revoked = {}
        self.grants.clear()

    def end_round(self) -> None:
        """Forwards have been worked off: only what is still granted keeps its lease."""
        self.leased = self.granted()

    def granted(self) -> set[WorkerId]:
        """Every worker that some upstream instance may send to."""
        return {worker for of_actor in self.grants.values() for granted in of_actor.values() for worker in granted}
