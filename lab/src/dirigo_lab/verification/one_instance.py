"""An actor in one place, run message by message: what a reference is made of, which knows nothing of the protocol.

It has a queue per edge, no cuts, no rounds, no leases. A critical message takes its place in the queue of its edge; a
SYNC_ONE waits until it heads the queues of all upstream actors that have not ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dirigo.kernel import Address, Behaviour, Context, CriticalOutput, CriticalRun, Granularity, Output, States


class OneInstance:
    """An actor, all of it in one place."""

    def __init__(self, name: Address, upstreams: Iterable[Address], states: States, function: Behaviour) -> None:
        self.name = name
        self.context = Context(name, states)
        self.function = function
        self.queues: dict[Address, deque[Output | CriticalOutput]] = {upstream: deque() for upstream in upstreams}
        self.ended: set[Address] = set()

    def work(self) -> list[Output | CriticalOutput]:
        """Process all that can be processed; what comes of it, in order."""
        while self._work_once():
            pass
        outputs, self.context.outputs = self.context.outputs, []
        return outputs

    def _work_once(self) -> bool:
        for sender, queue in self.queues.items():
            if not queue:
                continue
            head = queue[0]
            if not isinstance(head, CriticalOutput):
                self._process(queue.popleft())
                return True
            members = [sender]
            if head.granularity is Granularity.ONE:
                members = sorted(self.queues.keys() - self.ended)
                if not all(_is_headed_by(self.queues[member], head.payload) for member in members):
                    continue
            self._process_critical(members, head)
            return True
        return False

    def _process(self, output: Output | CriticalOutput) -> None:
        """What the function asks to run alone runs after the message, with all that it put out."""
        context = self.context
        before = len(context.outputs)
        self.function.on_message(context, output.payload)
        alone = [each for each in context.outputs[before:] if each.to == self.name]
        context.outputs[before:] = [each for each in context.outputs[before:] if each.to != self.name] + alone
        self._run_alone(before)

    def _process_critical(self, members: list[Address], head: CriticalOutput) -> None:
        parts = []
        final = True
        for member in members:
            output = self.queues[member].popleft()
            assert isinstance(output, CriticalOutput)
            parts.append((member, 0, output.payload))
            final = final and output.final
            if output.final:
                self.ended.add(member)
        before = len(self.context.outputs)
        run = CriticalRun(self.name, 0, tuple(parts), head.granularity, 0, final)
        self.function.on_critical(self.context, run)
        self._run_alone(before)

    def _run_alone(self, before: int) -> None:
        """Run what the function sent to itself where it stands among its outputs: it is alone. Timers go off at once."""
        context = self.context
        produced = context.outputs[before:]
        del context.outputs[before:]
        timers, context.timers = context.timers, ()
        for output in produced:
            if output.to == self.name:
                self._on_itself(output.payload)
            else:
                context.outputs.append(output)
        for _, payload in timers:
            self._on_itself(payload)

    def _on_itself(self, payload: str) -> None:
        parts = ((self.name, 0, payload),)
        self.function.on_critical(self.context, CriticalRun(self.name, 0, parts, Granularity.CHANNEL, 0, False))


def _is_headed_by(queue: deque[Output | CriticalOutput], one: str) -> bool:
    """Whether a queue is headed by its part of a SYNC_ONE; all parts have one name."""
    return bool(queue) and queue[0].critical and queue[0].payload == one
