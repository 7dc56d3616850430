"""Whom a barrier waits for: what a lessor can tell when one takes long."""

from __future__ import annotations

from dirigo.kernel.interface.address import instance_name
from dirigo.kernel.interface.message import Granularity
from dirigo.kernel.lessor import Lessor

_KINDS = {Granularity.ONE: "SYNC_ONE", Granularity.SNAPSHOT: "snapshot"}


def waiting_for(lessor: Lessor) -> list[str]:
    """What the barriers at a lessor wait for, in short sentences: who is missing when one takes long."""
    return [*_in_the_round(lessor), *_before_a_round(lessor)]


def _in_the_round(lessor: Lessor) -> list[str]:
    current = lessor.round
    if current is None:
        return []
    missing = [f"a running message at {lessor.name}"] if lessor.running is not None else []
    missing += [f"user code that handles the states of {lessor.name}"] if current.is_apart else []
    for program in current.undrained:
        sender = program.message.sender
        for origin, cut in program.at_home.items():
            channel = lessor.upstreams[sender].channels.get(origin)
            if (done := channel.done if channel is not None else 0) < cut:
                missing.append(f"{cut - done} messages from {instance_name(sender, origin)}")
    for worker in current.lessees:
        if worker not in current.replies:
            got = "has not acknowledged" if worker in current.unacknowledged else "has not answered"
            missing.append(f"{instance_name(lessor.address, worker)}, which {got} round {current.number}")
    for worker, reply in current.replies.items():
        channel = lessor.leases.returns.get(worker)
        if (back := reply.returned - (channel.done if channel is not None else 0)) > 0:
            missing.append(f"{back} messages or intents handed back by {instance_name(lessor.address, worker)}")
    if current.task is not None and lessor.running is None:
        missing.append(f"the strategy at w{lessor.worker}, which has not chosen a critical message of {lessor.address}")
    missing += [f"the acknowledgment of a program by {to}" for to in sorted(lessor.outbox.busy)]
    return missing


def _before_a_round(lessor: Lessor) -> list[str]:
    """SYNC_ONEs and snapshots that are not complete, and grants that are being taken back."""
    missing = set()
    for upstream in lessor.upstreams.values():
        head = upstream.programs[0].message if upstream.programs else None
        if head is not None and (kind := _KINDS.get(head.granularity)) is not None:
            for address in head.blocks:
                if not lessor.upstreams[address].programs and not lessor.upstreams[address].ended:
                    missing.add(f"{kind} {head.barrier} of {address}")
    for instance in lessor.leases.revoking or ():
        missing.add(f"{instance_name(*instance)}, which has not answered a REVOKE")
    return sorted(missing)
