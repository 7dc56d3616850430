"""Where else a message may run: how a strategy chooses among the workers that its actor may be leased to.

A selector gets the workers in question and picks one. ``LesseesAllowed`` says who is in question: only so many workers
per actor, the next ones after its home, so that a barrier never has more lessees to wait for.
"""

from __future__ import annotations

from typing import Protocol

from dirigo.kernel import Address, SchedulingContext, WorkerId

LARGE_STATE_BYTES = 64 << 10  # from here on collecting partial states takes noticeably longer (section 7 of the paper)
_LOOK_S = 0.25  # so often the size of a state is looked at


class LesseesAllowed:
    """At most ``most`` workers besides its home for each actor, fewer for one with a large state."""

    __slots__ = ("_known", "most")

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"an actor with {most} lessees cannot scale; give 1 or more")
        self.most = most
        # actor -> (the pool then, how long this is good for, the workers): strategies ask for every message
        self._known: dict[Address, tuple[tuple[WorkerId, ...], float, tuple[WorkerId, ...]]] = {}

    def of(self, context: SchedulingContext, actor: Address) -> tuple[WorkerId, ...]:
        """The workers that an actor may be leased to, besides its home."""
        known = self._known.get(actor)
        if known is not None and known[0] is context.workers and context.now <= known[1]:
            return known[2]
        found = self._look(context, actor)
        self._known[actor] = (context.workers, context.now + _LOOK_S, found)
        return found

    def _look(self, context: SchedulingContext, actor: Address) -> tuple[WorkerId, ...]:
        spec = context.spec(actor)
        if spec.ordered:
            return ()
        most, home, workers = min(self.most, spec.lessees_max), spec.home, context.workers
        if home == context.id:  # elsewhere only a part of the state is known
            size = context.state_bytes(actor)
            if size > LARGE_STATE_BYTES:
                most = min(most, max(1, most * LARGE_STATE_BYTES // size))
        start = next((index for index, worker in enumerate(workers) if worker > home), 0)
        others = [worker for worker in (*workers[start:], *workers[:start]) if worker != home]
        return tuple(others[:most])

    def forget_job(self, job: str) -> None:
        for actor in [actor for actor in self._known if actor.startswith(f"{job}/")]:
            del self._known[actor]


class Selector(Protocol):
    """Picks one of several workers, at least one."""

    def __call__(self, context: SchedulingContext, workers: tuple[WorkerId, ...]) -> WorkerId: ...


def at_random(context: SchedulingContext, workers: tuple[WorkerId, ...]) -> WorkerId:
    return workers[context.rng.randrange(len(workers))]


def least_loaded(context: SchedulingContext, workers: tuple[WorkerId, ...]) -> WorkerId:
    """The one with the least urgent work; among equals one by chance, or all would choose the same."""
    if len(workers) == 1:
        return workers[0]
    start = context.rng.randrange(len(workers))
    best, best_load = workers[start], context.load(workers[start])
    for offset in range(1, len(workers)):
        worker = workers[(start + offset) % len(workers)]
        load = context.load(worker)
        if load < best_load:
            best, best_load = worker, load
    return best


def less_loaded_of_two(context: SchedulingContext, workers: tuple[WorkerId, ...], *, is_urgent: bool = True) -> WorkerId:
    """The power of two choices: nearly as good as the least loaded, and nobody has to look at all of them."""
    return _less_loaded(context, workers, 2, is_urgent)


def less_loaded_of_three(context: SchedulingContext, workers: tuple[WorkerId, ...], *, is_urgent: bool = True) -> WorkerId:
    """Fewer surprises than with two, where one knows more than hearsay; and choosers still differ from each other."""
    return _less_loaded(context, workers, 3, is_urgent)


def _less_loaded(context: SchedulingContext, workers: tuple[WorkerId, ...], choices: int, is_urgent: bool) -> WorkerId:
    """The least loaded of some. What is urgent goes before what is not, and so waits only for what is urgent as well."""
    count = len(workers)
    if count == 1:
        return workers[0]
    index = context.rng.randrange(count)
    step = 1 + context.rng.randrange(count - 1)
    candidates = [workers[(index + turn * step) % count] for turn in range(choices)]
    if is_urgent:
        return min(candidates, key=context.load)
    return min(candidates, key=lambda worker: context.load(worker)[1])


class InTurn:
    """Round robin."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = -1

    def __call__(self, context: SchedulingContext, workers: tuple[WorkerId, ...]) -> WorkerId:
        self._turn += 1
        return workers[self._turn % len(workers)]


def selector_named(name: str) -> Selector:
    """A selector by its name, as strategies take it."""
    if name == "round_robin":
        return InTurn()
    known: dict[str, Selector] = {"random": at_random, "least_loaded": least_loaded, "p2c": less_loaded_of_two}
    if name not in known:
        raise ValueError(f"lessees are selected by random, round_robin, least_loaded or p2c, not {name!r}")
    return known[name]
