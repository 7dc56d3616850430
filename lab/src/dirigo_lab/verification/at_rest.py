"""What must be true of the workers when nothing can happen any more."""

from __future__ import annotations

from typing import Any

from dirigo.kernel import MailboxState, Worker
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo_lab.verification.checker import ViolationError


def check_at_rest(workers: list[Worker]) -> None:
    """Nothing can happen any more: all queues are empty, and what lessors and lessees believe of each other agrees."""
    for worker in workers:
        if getattr(worker.strategy, "kept", ()) or worker.running is not None:
            raise ViolationError("no-deadlock", f"w{worker.id} still has messages to run")
        for party in worker.parties.values():
            for route in party.outbox.routes.values():
                if route.waiting or route.backlog or route.awaiting > 0:
                    raise ViolationError("no-deadlock", f"{party.name} still has outputs for {route.to}")
            if isinstance(party, (Lessor, Lessee)):
                _check_instance_at_rest(party)
            if isinstance(party, Lessor):
                _check_leases(party, workers)


def _check_instance_at_rest(party: Lessor | Lessee) -> None:
    left: list[Any] = list(party.held)
    if isinstance(party, Lessor):
        left += [*party.withheld, *party.handed_over, *party.alone, *party.leases.deferred.values(), *party.parked.values()]
        left += [program for upstream in party.upstreams.values() for program in upstream.programs]
        if party.leases.revoking is not None:
            left.append("a scale-in")
    else:
        left += [*party.early, *([party.held_request] if party.held_request else [])]
    if party.withholding:
        left.append("a barrier to wait for with its outputs")
    if left or party.state is not MailboxState.RUNNABLE:
        raise ViolationError("no-deadlock", f"{party.name} is {party.state.value} and still has {left}")


def _check_leases(lessor: Lessor, workers: list[Worker]) -> None:
    leases = lessor.leases
    for worker in workers:
        party = worker.parties.get(lessor.address)
        if isinstance(party, Lessee) and not party.states.is_identity() and worker.id not in leases.leased:
            raise ViolationError("leases-consistent", f"{party.name} has a partial state but no lease")
        for sender in worker.parties.values():
            route = sender.outbox.routes.get(lessor.address)
            granted = leases.granted_to(sender.address, worker.id)
            if route is not None and not route.open <= granted:
                raise ViolationError("leases-consistent", f"{sender.name} may send where {lessor.name} did not grant it")
    if not leases.granted() <= leases.leased:
        raise ViolationError("leases-consistent", f"{lessor.name} granted a worker that holds no lease")
