"""Random worlds are functions of their seeds, have sound scripts, and are as different as they should be."""

from collections import Counter

from dirigo.kernel import CriticalOutput, Granularity
from dirigo.sim.network import DeliveryOrder
from dirigo_lab.verification.random.world import RandomWorld, random_world

SEEDS = range(300)


def barriers(world: RandomWorld, source: str) -> list[CriticalOutput]:
    return [output for step in world.scripts[source] for output in step if isinstance(output, CriticalOutput)]


def test_the_same_seed_makes_the_same_world() -> None:
    for seed in range(20):
        one, two = random_world(seed), random_world(seed)
        assert (one.actors, one.scripts, one.homes, one.times, one.minds, one.trouble, one.allowed) == (
            *(two.actors, two.scripts, two.homes, two.times, two.minds, two.trouble, two.allowed),
        )


def test_a_calm_world_differs_only_in_its_strategies() -> None:
    one, two = random_world(5), random_world(5, calm=True)
    assert (one.actors, one.scripts, one.homes, one.times) == (two.actors, two.scripts, two.homes, two.times)
    assert {mind.kind for mind in two.minds} == {"fifo"}


def test_worlds_are_different() -> None:
    worlds = [random_world(seed) for seed in SEEDS]
    assert {len(world.actors) for world in worlds} == set(range(1, 9))
    assert {len(world.scripts) for world in worlds} == {1, 2, 3}
    assert {world.workers for world in worlds} == set(range(1, 7))
    assert {mind.kind for world in worlds for mind in world.minds} == {"fifo", "chaos", "priority"}
    assert {world.network.order for world in worlds} == set(DeliveryOrder)
    met: Counter[str] = Counter()
    for world in worlds:
        homes = [world.homes[actor.name] for actor in world.actors]
        met["shared workers"] += len(set(homes)) < len(homes)
        for actor in world.random_actors():
            met["fan-in"] += len(actor.upstreams) > 1
            met["fan-out"] += len(actor.downstreams) > 1
            met["one of several"] += actor.picks_one
            met["ordered"] += actor.ordered
            met["replicated"] += actor.replicated
            met["born"] += actor.born_every > 0
            met["alone"] += actor.alone_every > 0
            met["swallows"] += actor.swallow_every > 0
            met["results"] += actor.results
            met["bounded"] += actor.lessees_max < 64
            met["timers"] += actor.timer_every > 0
        met["freezes"] += bool(world.trouble.freezes)
        met["scale-ins"] += bool(world.trouble.scale_ins)
        met["duplicates"] += world.network.duplicates > 0
        met["ends"] += any(output.final for source in world.scripts for output in barriers(world, source))
    assert min(met.values()) > 10, met


def number(output: CriticalOutput) -> int:
    """Which SYNC_ONE it is, by its name; 0 for another critical message."""
    return int(output.payload.removeprefix("one")) if output.granularity is Granularity.ONE else 0


def test_every_source_sends_every_sync_one_in_order_unless_it_has_ended() -> None:
    several = 0
    for seed in SEEDS:
        world = random_world(seed)
        last = max([number(output) for source in world.scripts for output in barriers(world, source)], default=0)
        several += last > 1
        for source, steps in world.scripts.items():
            for target in world.targets(source):
                sent = [output for output in barriers(world, source) if output.to == target]
                ones = [number(output) for output in sent if output.granularity is Granularity.ONE]
                ended = any(output.final for output in sent)
                assert ones == list(range(1, len(ones) + 1))
                assert len(ones) == last or ended
                assert [output.final for output in sent[:-1]].count(True) == 0, "something follows the end"
            assert len(steps) == len(world.times[source])
    assert several > 50


def test_no_message_is_sent_twice_on_an_edge() -> None:
    for seed in SEEDS:
        for steps in random_world(seed).scripts.values():
            sent = [(output.to, output.payload) for step in steps for output in step]
            assert len(set(sent)) == len(sent)
