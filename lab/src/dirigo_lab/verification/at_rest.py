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
        for participant in worker.participants.values():
            for route in participant.outbox.routes.values():
                if route.waiting or route.backlog or route.awaiting > 0:
                    raise ViolationError("no-deadlock", f"{participant.name} still has outputs for {route.to}")
            if isinstance(participant, (Lessor, Lessee)):
                _check_instance_at_rest(participant)
            if isinstance(participant, Lessor):
                _check_leases(participant, workers)


def _check_instance_at_rest(participant: Lessor | Lessee) -> None:
    left: list[Any] = list(participant.held)
    if isinstance(participant, Lessor):
        left += [
            *participant.withheld,
            *participant.handed_over,
            *participant.alone,
            *participant.leases.deferred.values(),
            *participant.parked.values(),
        ]
        left += [program for upstream in participant.upstreams.values() for program in upstream.programs]
        if participant.leases.revoking is not None:
            left.append("a scale-in")
    else:
        left += [*participant.early, *([participant.held_request] if participant.held_request else [])]
    if participant.withholding:
        left.append("a barrier to wait for with its outputs")
    if left or participant.state is not MailboxState.RUNNABLE:
        raise ViolationError("no-deadlock", f"{participant.name} is {participant.state.value} and still has {left}")


def _check_leases(lessor: Lessor, workers: list[Worker]) -> None:
    leases = lessor.leases
    for worker in workers:
        participant = worker.participants.get(lessor.address)
        if isinstance(participant, Lessee) and not participant.states.is_identity() and worker.id not in leases.leased:
            raise ViolationError("leases-consistent", f"{participant.name} has a partial state but no lease")
        for sender in worker.participants.values():
            route = sender.outbox.routes.get(lessor.address)
            granted = leases.granted_to(sender.address, worker.id)
            if route is not None and not route.open <= granted:
                raise ViolationError("leases-consistent", f"{sender.name} may send where {lessor.name} did not grant it")
    if not leases.granted() <= leases.leased:
        raise ViolationError("leases-consistent", f"{lessor.name} granted a worker that holds no lease")
