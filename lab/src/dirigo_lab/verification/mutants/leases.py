"""Mistakes with leases, registrations and channels to lessees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dirigo.kernel.interface.message import RevokeAck
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import MailboxState
from dirigo.kernel.outbox import Outbox
from dirigo_lab.verification.mutants.mutant import mutant


@mutant("grant-in-round", "a registration is granted during a round", Lessor, "_defers", "registration-race", "overlap")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, upstream: bool(self.upstreams[upstream].programs) or self.leases.revoking is not None


@mutant(
    "grant-behind-cut", "a registration is granted although the cut is installed", Lessor, "_defers", "incomplete-sync-one"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, upstream: self.state is not MailboxState.RUNNABLE or self.leases.revoking is not None


@mutant("grant-in-scale-in", "a registration is granted while grants are taken back", Lessor, "_defers", "scale-in-race")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, upstream: self.state is not MailboxState.RUNNABLE or bool(self.upstreams[upstream].programs)


@mutant("stale-grant", "the answer to an old registration is taken", Outbox, "on_grant", "registration-race", "two-barriers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, grant: Any) -> bool:
        route = self.route(grant.sender)
        number, asked = route.number, route.asked
        route.number, route.asked = grant.number, asked or frozenset(grant.workers)
        try:
            return bool(original(self, grant))
        finally:
            route.number = max(number, route.number)

    return mistaken


@mutant("sender-keeps-channels", "a lessor keeps its channels after a program", Outbox, "close", "overlap", "scale-in")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, route: self.send_waiting_home(route)


@mutant("lessee-keeps-channels", "a lessee keeps its channels after UNSYNC", Outbox, "close_all", "two-barriers", "scale-in")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: None


@mutant("grants-end-too-early", "grants end when the cut is installed", Lessor, "on_program", "incomplete-sync-one")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, program: Any) -> None:
        self.leases.end_grants_of(program.sender)
        original(self, program)

    return mistaken


@mutant(
    "waiting-left-behind", "outputs that wait for a grant are not sent home", Outbox, "send_waiting_home", "overlap", "chain"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, route: None


@mutant(
    "revoke-without-ids", "REVOKE is acknowledged without the last ids", Outbox, "on_revoke", "scale-in-race", "scale-in"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, revoke: Any) -> None:
        original(self, revoke)
        ack = self.participant.host.outgoing.pop()
        assert isinstance(ack, RevokeAck)
        self.participant.host.outgoing.append(RevokeAck(ack.to, ack.worker, ack.sender, ack.origin, ack.number, ()))

    return mistaken


@mutant("lease-an-ordered", "an ordered function is leased", Lessor, "may_lease", "ordered")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, worker: worker != self.worker


@mutant("old-view", "a lessee runs messages before it knows the view", Lessee, "accept", "read-replica")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, message: Any) -> None:
        version, self.view_version = self.view_version, 1 << 30
        try:
            original(self, message)
        finally:
            self.view_version = version

    return mistaken
