"""What DIRECTSEND does with messages that a barrier has left at an actor's home.

A barrier closes the channels to lessees, and what senders have to send before their own barrier goes home meanwhile. For an
actor that is hot that is more than its home can do; the next barrier waits for it, channels stay closed for longer, and more
comes home: without a remedy, an actor that has fallen behind once would stay so for ever, beside idle lessees. So what is
left after a barrier is given back, and spread by the home as its senders would have done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dirigo.kernel import RunnableMessage, SchedulingContext, WorkerId

Choose = Callable[[SchedulingContext, RunnableMessage], WorkerId | None]


class ReturnedMessages:
    """Messages that were given back after a barrier, until each has been offered again."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: set[int] = set()

    def note(self, messages: Iterable[RunnableMessage]) -> list[RunnableMessage]:
        """Who gets these holds them until they are offered again, so no other message has their ids."""
        given = list(messages)
        self._ids.update(map(id, given))
        return given

    def elsewhere(self, context: SchedulingContext, message: RunnableMessage, choose: Choose) -> WorkerId | None:
        """Where a message that is offered goes: to a lessee, if it was given back and is not to stay here."""
        if not self._ids or id(message) not in self._ids:
            return None
        self._ids.remove(id(message))
        worker = choose(context, message)
        return worker if worker is not None and context.may_forward(message, worker) else None
