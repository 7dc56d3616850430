"""The generations of a random world: the same graph and the same input each time, and everything else anew.

A generation is a job of its own to the workers, so the addresses of its actors begin with its id. Where the actors are, how
many workers there are, what strategies and network do: all of that is drawn again, as after a loss.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from random import Random

from dirigo.kernel import Address, CriticalOutput, Output
from dirigo_lab.verification.random.world import (
    RandomActor,
    RandomWorld,
    random_freedom,
    random_minds,
    random_network,
    random_trouble,
    some_others,
)
from dirigo_lab.verification.world import Step


def job_id(generation: int) -> str:
    """What the workers know a generation as: the first has the job's own id."""
    return f"job.{generation}" if generation else "job"


def address_in(letter: str, generation: int) -> Address:
    return f"{job_id(generation)}/{letter}"


def generation_of(world: RandomWorld, generation: int) -> RandomWorld:
    rng = Random(f"generation {generation} of {world.seed}")
    names = [*world.scripts, *(actor.name for actor in world.actors)]
    address = {name: address_in(name, generation) for name in names}

    def all_of(letters: tuple[str, ...]) -> tuple[Address, ...]:
        return tuple(address[letter] for letter in letters)

    def step_of(step: Step) -> Step:
        return tuple(_to(output, address[output.to]) for output in step)

    workers = rng.randrange(1, 7)
    placement = {name: rng.randrange(workers) for name in address.values()}
    actors: list[RandomActor] = [
        replace(
            actor,
            name=address[actor.name],
            downstreams=all_of(actor.downstreams),
            upstreams=all_of(actor.upstreams),
            propagates=None if actor.propagates is None else all_of(actor.propagates),
        )
        for actor in world.random_actors()
    ]
    candidates = {actor.name: some_others(rng, workers, placement[actor.name]) for actor in actors}
    span = max([times[-1] for times in world.times.values() if times], default=0.0) + 10.0
    trouble = random_trouble(rng, workers, actors, placement, span)
    return replace(
        world,
        actors=tuple(actors),
        scripts={address[source]: tuple(map(step_of, steps)) for source, steps in world.scripts.items()},
        times={address[source]: _times(world, source, len(steps)) for source, steps in world.scripts.items()},
        sends_to={address[source]: all_of(targets) for source, targets in world.sends_to.items()},
        workers_count=workers,
        placement=placement,
        candidates=candidates,
        minds=random_minds(rng, workers),
        allowed=random_freedom(rng, actors, candidates),
        network=random_network(rng, workers, span),
        trouble=replace(trouble, slow=trouble.slow[:1]),  # several at one worker would take for ever
    )


def _times(world: RandomWorld, source: Address, count: int) -> tuple[float, ...]:
    """When a source takes its steps: slowly enough for snapshots between them, and the same in every generation."""
    rng = Random(f"times of {source} in {world.seed}")
    pace = rng.choice((0.2, 1.0, 3.0))
    return tuple(accumulate(rng.expovariate(1.0 / pace) for _ in range(count)))


def _to(output: Output | CriticalOutput, address: Address) -> Output | CriticalOutput:
    if isinstance(output, CriticalOutput):
        return CriticalOutput(address, output.payload, output.granularity, output.final)
    return Output(address, output.payload)
