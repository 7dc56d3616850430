"""Whether a worker is at rest: nothing that arrived is undone, nothing waits, no round is under way.

It reads the kernel's own counters, so it needs no help from a strategy to know what the strategy still keeps.
"""

from __future__ import annotations

from collections.abc import Iterator

from dirigo.kernel import MailboxState, Worker
from dirigo.kernel.channel import Inbound
from dirigo.kernel.instance import Instance
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.outbox import Outbox


def unfinished(worker: Worker) -> Iterator[str]:
    """One sentence for everything that is still to be done at a worker, as far as the worker knows."""
    if worker.outgoing:
        yield f"w{worker.id} has {len(worker.outgoing)} messages to send"
    for participant in worker.participants.values():
        for what in _of_outbox(participant.outbox):
            yield f"{participant.name} {what}"
        if isinstance(participant, Instance):
            for what in _of_instance(participant):
                yield f"{participant.name} {what}"


def _of_outbox(outbox: Outbox) -> Iterator[str]:
    for route in outbox.routes.values():
        if route.awaiting > 0:
            yield f"waits for {route.to} to acknowledge program {route.awaiting}"
        if route.backlog:
            yield f"keeps {len(route.backlog)} outputs for {route.to} behind a barrier"
        if route.waiting:
            yield f"keeps {len(route.waiting)} outputs for {route.to} until a grant comes"


def _of_instance(instance: Instance) -> Iterator[str]:
    if instance.running is not None:
        yield "is running a message"
    if instance.state is not MailboxState.RUNNABLE:
        yield f"is {instance.state.value}"
    if instance.held:
        yield f"holds {len(instance.held)} messages"
    channels = _channels(instance)
    undone = sum(channel.arrived + len(channel.ahead or ()) - channel.done for channel in channels)
    if undone:
        yield f"has {undone} messages that did not run"
    missing = sum(1 for channel in channels if channel.ahead)
    if missing:
        yield f"misses messages on {missing} channels"
    if isinstance(instance, Lessor):
        waiting = sum(len(upstream.programs) for upstream in instance.upstreams.values())
        if waiting:
            yield f"has {waiting} programs that did not run"
        if instance.withheld or instance.handed_over:
            yield f"withholds {len(instance.withheld) + len(instance.handed_over)} outputs"
        if instance.alone:
            yield f"has {len(instance.alone)} messages to itself that did not run"
        if instance.leases.deferred:
            yield f"has {len(instance.leases.deferred)} registrations to answer"
        if instance.leases.revoking is not None:
            yield "is scaling in"


def _channels(instance: Instance) -> list[Inbound]:
    if isinstance(instance, Lessor):
        inputs = [channel for upstream in instance.upstreams.values() for channel in upstream.channels.values()]
        return inputs + list(instance.leases.returns.values())
    assert isinstance(instance, Lessee)
    return [instance.forwards, *instance.direct.values()]
