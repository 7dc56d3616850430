"""Tells one run of a world step by step: the event, and what every mailbox looks like after it."""

from __future__ import annotations

from collections.abc import Iterator

from dirigo.errors import DirigoError
from dirigo.kernel.instance import Instance
from dirigo_lab.verification.checker import ViolationError
from dirigo_lab.verification.explorer import Explorer, State
from dirigo_lab.verification.world import World, seen


def replay_moves(world: World, moves: list[int]) -> Iterator[str]:
    """Follow a path; each number picks one of the moves that are possible, in the order of their descriptions."""
    explorer = Explorer(world)
    state = explorer.initial()
    yield f"{world.name}: {world.about}"
    for step, number in enumerate(moves, 1):
        options = explorer.options(state)
        if number >= len(options):
            raise IndexError(f"step {step} picks move {number}, but only {len(options)} are possible there")
        told, move = options[number]
        yield f"{step}. {told}"
        try:
            state = explorer.after(state, move)
        except (DirigoError, ViolationError) as error:
            yield f"   violation: {error}"
            return
        yield from _mailboxes(explorer, state)
    try:
        explorer.check_end(state)
    except ViolationError as violation:
        yield f"   violation: {violation}"


def _mailboxes(explorer: Explorer, state: State) -> Iterator[str]:
    for slot in range(explorer.width):
        for participant in explorer.handlers.worker(slot, state[slot]).participants.values():
            if isinstance(participant, Instance):
                contents = ", ".join(f"{payload}x{count}" for payload, count in sorted(seen(participant.states).items()))
                running = f", runs {participant.running.payload}" if participant.running is not None else ""
                held = f", holds {[message.payload for message in participant.held]}" if participant.held else ""
                who = f"{participant.role.value} {participant.name} {participant.state.value}"
                yield f"      {who} [{contents}]{running}{held}"
