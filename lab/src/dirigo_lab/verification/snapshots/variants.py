"""A world with snapshots is many worlds: one for every combination of points at which its sources may emit the barriers.

Where a source is when it is asked is a matter of chance, and sources know nothing of each other. So every combination is
possible; and in each of them the explorer lets the messages overtake each other as ever. What was captured in one of them
then begins a world of its own, with what is left of the scripts: it is explored to its end, too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations_with_replacement, product

from dirigo.kernel import Address, CriticalOutput, Granularity, Kept, Output
from dirigo_lab.verification.checker import Ledger, ViolationError
from dirigo_lab.verification.explorer import Exploration, Explorer
from dirigo_lab.verification.one_instance import OneInstance
from dirigo_lab.verification.snapshots.naming import CaptureInWorld, snapshot_name
from dirigo_lab.verification.world import Relay, StatesOf, Step, World

Positions = Mapping[Address, tuple[int, ...]]  # of each source: how many steps come before each snapshot
Counts = Mapping[str, int]


def has_ended(script: tuple[Step, ...], position: int) -> bool:
    """Whether a source that is here has ended: it emits no barrier any more."""
    last = script[position - 1] if position else ()
    return any(isinstance(output, CriticalOutput) and output.final for output in last)


class TakenSnapshots:
    """What must come of the snapshots of one variant: an invariant at its end, which also gathers what was captured."""

    def __init__(self, world: World, positions: Positions) -> None:
        self.world = world
        self.positions = positions
        self.expected, _ = sequential(world, world.scripts)
        self.cuts: dict[tuple[int, str], dict[Address, CaptureInWorld]] = {}  # (snapshot, what was captured) -> the same
        self._at_cut = [self._before(number) for number in range(world.snapshots)]
        self._reached = [self._reached_by(number) for number in range(world.snapshots)]

    def _before(self, number: int) -> tuple[dict[Address, dict[str, int]], bool]:
        emitted = {source: script[: self.positions[source][number]] for source, script in self.world.scripts.items()}
        return sequential(self.world, emitted)

    def _reached_by(self, number: int) -> set[Address]:
        """The actors that get a barrier."""
        scripts = self.world.scripts
        alive = {source for source in scripts if not has_ended(scripts[source], self.positions[source][number])}
        for _ in self.world.actors:
            alive |= {actor.name for actor in self.world.actors if not alive.isdisjoint(self.world.upstreams(actor.name))}
        return alive - scripts.keys()

    def check_end(self, ledgers: Mapping[Address, Ledger]) -> None:
        check_counts(ledgers, self.expected)
        for index in range(self.world.snapshots):
            self._check_snapshot(index, ledgers)

    def _check_snapshot(self, index: int, ledgers: Mapping[Address, Ledger]) -> None:
        number, reached = index + 1, self._reached[index]
        ran = {name for name, ledger in ledgers.items() if number in ledger.snapshots}
        if ran != reached:
            raise ViolationError("snapshot-once", f"snapshot {number} ran at {sorted(ran)}, not at {sorted(reached)}")
        is_void = any(ledgers[name].snapshots[number] is None for name in ran)
        states, is_stuck = self._at_cut[index]
        if is_void != is_stuck:
            way = "is void" if is_void else "is not void"
            raise ViolationError("snapshot-gives-way", f"snapshot {number} {way}, at {self.positions}")
        if is_void:
            return
        captures = {}
        for name, ledger in ledgers.items():
            capture = ledger.snapshots.get(number)
            if capture is None:  # it has ended, and is captured as such: nothing changes there any more
                content = tuple(sorted(ledger.executed_counts.items()))
                capture = CaptureInWorld(content, Kept(self.world.upstreams(name), ()))
            captures[name] = capture
            found = Counter(dict(capture.content)) + Counter(payload for _, payload in capture.kept.timers)
            if found != Counter(states[name]):
                raise ViolationError("snapshot-cut", f"snapshot {number} has {found} of {name}, not {states[name]}")
        self.cuts.setdefault((number, repr(sorted(captures.items()))), captures)


class Continued:
    """What must come of a world that was restored: what comes of the whole one."""

    def __init__(self, expected: Mapping[Address, Counts]) -> None:
        self._expected = expected

    def check_end(self, ledgers: Mapping[Address, Ledger]) -> None:
        check_counts(ledgers, self._expected)


def check_counts(ledgers: Mapping[Address, Ledger], expected: Mapping[Address, Counts]) -> None:
    for name, ledger in ledgers.items():
        if ledger.executed_counts != expected[name]:
            raise ViolationError("as-sequential", f"{name} counted {ledger.executed_counts}, not {expected[name]}")


def sequential(world: World, scripts: Mapping[Address, tuple[Step, ...]]) -> tuple[dict[Address, dict[str, int]], bool]:
    """What the actors count when one thread runs these scripts, and whether something is left that waits for ever."""
    actors = {}
    for actor in world.actors:
        states = StatesOf(False)()
        actors[actor.name] = OneInstance(actor.name, world.upstreams(actor.name), states, Relay(actor, states))
    for source, script in scripts.items():
        for step in script:
            todo: deque[tuple[Address, Output | CriticalOutput]] = deque((source, output) for output in step)
            while todo:
                sender, output = todo.popleft()
                actors[output.to].queues[sender].append(output)
                todo.extend((output.to, following) for following in actors[output.to].work())
    counts = {name: dict(actor.context.states.cell("seen").items()) for name, actor in actors.items()}  # type: ignore[attr-defined]
    return counts, any(queue for actor in actors.values() for queue in actor.queues.values())


# --- variants ------------------------------------------------------------------------------------------------------------


def variants(world: World) -> Iterator[World]:
    """The worlds that a world with snapshots consists of; at least one source of each emits each barrier."""
    sends = {source: world.targets(source) for source in world.scripts}
    choices = [
        list(combinations_with_replacement(range(len(script) + 1), world.snapshots)) for script in world.scripts.values()
    ]
    for chosen in product(*choices):
        positions = dict(zip(world.scripts, chosen, strict=True))
        if all(has_ended(world.scripts[source], places[-1]) for source, places in positions.items()):
            continue
        scripts = {
            source: _with_barriers(script, positions[source], sends[source]) for source, script in world.scripts.items()
        }
        name = f"{world.name}@" + ".".join("-".join(map(str, places)) for places in chosen)
        yield replace(world, name=name, scripts=scripts, sends=sends, cut=TakenSnapshots(world, positions))


def _with_barriers(script: tuple[Step, ...], places: tuple[int, ...], targets: tuple[Address, ...]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for index in range(len(script) + 1):
        for number, place in enumerate(places, 1):
            if place == index and not has_ended(script, index):
                steps.append(tuple(CriticalOutput(to, snapshot_name(number), Granularity.SNAPSHOT) for to in targets))
        steps += script[index : index + 1]
    return tuple(steps)


def continuations(variant: World) -> Iterator[World]:
    """The worlds that begin from what was captured in a variant; it has been explored."""
    taken = variant.cut
    assert isinstance(taken, TakenSnapshots)
    for index, ((number, _), captures) in enumerate(sorted(taken.cuts.items(), key=lambda item: item[0])):
        left = {source: script[taken.positions[source][number - 1] :] for source, script in taken.world.scripts.items()}
        yield replace(
            variant, name=f"{variant.name}+{index}", scripts=left, restored=captures, cut=Continued(taken.expected)
        )


def explore(world: World, states_max: int, progress: Callable[[Exploration], None] | None = None) -> Exploration:
    """Explore a world; one with snapshots in all its variants, and each on from what was captured."""
    if not world.snapshots:
        return Explorer(world).search(states_max, progress)
    found = Exploration(world.name, closed=True)
    for variant in variants(world):
        _add(found, Explorer(variant).search(states_max), counts=True)
        for continued in () if found.violation else continuations(variant):
            _add(found, Explorer(continued).search(states_max), counts=False)
            if found.violation is not None:
                break
        if progress is not None:
            progress(found)
        if found.violation is not None or not found.closed:
            break
    return found


def _add(found: Exploration, more: Exploration, *, counts: bool) -> None:
    found.states += more.states
    found.transitions += more.transitions
    found.calls += more.calls
    found.longest = max(found.longest, more.longest)
    found.closed = found.closed and more.closed
    found.rows |= more.rows
    if counts:  # what is left of a script need not have anything before or after a barrier
        for kind, sides in more.covered.items():
            found.covered.setdefault(kind, set()).update(sides)
    if more.violation is not None:
        found.violation, found.story, found.path, found.variant = more.violation, more.story, more.path, more.world


def variant_named(world: World, name: str) -> World:
    """One of the worlds that a world with snapshots consists of, by the name that a violation tells."""
    place, _, cut = name.partition("+")
    variant = next((each for each in variants(world) if each.name == place), None)
    if variant is None:
        raise KeyError(f"there is no variant {name!r}; there are: {', '.join(each.name for each in variants(world))}")
    if not cut:
        return variant
    Explorer(variant).search()
    return list(continuations(variant))[int(cut)]
