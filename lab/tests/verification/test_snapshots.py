"""Worlds with snapshots: the worlds that they consist of, what must be captured there, and what must come of that."""

import pytest

from dirigo.kernel import Context, CriticalOutput, CriticalRun, Granularity
from dirigo_lab.verification import handlers
from dirigo_lab.verification.mutants import mutant_named
from dirigo_lab.verification.replay import replay_moves
from dirigo_lab.verification.snapshots.naming import CaptureInWorld, passed_on, snapshot_name, snapshot_of
from dirigo_lab.verification.snapshots.variants import TakenSnapshots, continuations, explore, sequential, variants
from dirigo_lab.verification.world import Actor, Relay, World, script
from dirigo_lab.verification.worlds import world_named


def small(text: str = "a b", other: str = "") -> World:
    scripts = {"S": script("D", text)} | ({"T": script("D", other)} if other else {})
    return World("small", "", (Actor("D", lessees=1),), scripts, snapshots=1)


def told(world: World) -> dict[str, list[str]]:
    """The scripts of a world, with the payloads of their barriers."""
    return {source: [output.payload for step in steps for output in step] for source, steps in world.scripts.items()}


def test_a_barrier_says_which_snapshot_it_is_of_and_whether_it_is_void() -> None:
    assert [snapshot_of(name) for name in (snapshot_name(12), snapshot_name(3, is_void=True), "one1")] == [12, 3, None]
    parts = (("S", 1, "snap2"), ("T", 1, "snap2~"))
    assert passed_on(CriticalRun("D", 0, parts, Granularity.SNAPSHOT, 1, False)) == "snap2~"
    assert passed_on(CriticalRun("D", 0, parts[:1], Granularity.SNAPSHOT, 1, False)) == "snap2"
    assert passed_on(CriticalRun("D", 0, parts[:1], Granularity.SNAPSHOT, 1, False, is_void=True)) == "snap2~"


def test_there_is_a_variant_for_every_combination_of_points() -> None:
    found = {world.name: told(world) for world in variants(small("a b", "x"))}
    assert len(found) == 6
    assert found["small@1.0"] == {"S": ["a", "snap1", "b"], "T": ["snap1", "x"]}
    assert found["small@2.1"] == {"S": ["a", "b", "snap1"], "T": ["x", "snap1"]}


def test_two_snapshots_are_in_one_order_in_every_script() -> None:
    world = World("two", "", (Actor("D"),), {"S": script("D", "a")}, snapshots=2)
    assert [told(variant)["S"] for variant in variants(world)] == [
        ["snap1", "snap2", "a"],
        ["snap1", "a", "snap2"],
        ["a", "snap1", "snap2"],
    ]


def test_a_source_that_has_ended_emits_no_barrier_and_without_any_there_is_no_variant() -> None:
    found = {world.name: told(world) for world in variants(small("a .", "x"))}
    assert found["small@2.1"] == {"S": ["a", "end"], "T": ["x", "snap1"]}
    assert [world.name for world in variants(small("a ."))] == ["small@0", "small@1"]


def test_the_sequential_result_tells_what_waits_for_ever() -> None:
    world = small("a #1", "x #1")
    assert sequential(world, world.scripts) == ({"D": {"a": 1, "x": 1, "one1": 1}}, False)
    before = {"S": world.scripts["S"], "T": world.scripts["T"][:1]}
    assert sequential(world, before) == ({"D": {"a": 1, "x": 1}}, True)


def test_a_world_is_explored_in_all_its_variants_and_on_from_what_was_captured() -> None:
    found = explore(small("a |1 b"), 100_000)
    alone = sum(explore(variant, 100_000).states for variant in _plain(small("a |1 b")))
    assert found.verdict == "holds"
    assert found.states > alone > 0


def _plain(world: World) -> list[World]:
    """The variants, as worlds that are explored once and not from their cuts."""
    return [World(v.name, "", v.actors, v.scripts, sends=v.sends, cut=v.cut) for v in variants(world)]


def test_what_was_captured_begins_a_world_of_its_own() -> None:
    (variant,) = [each for each in variants(small()) if each.name == "small@1"]
    explore(World(variant.name, "", variant.actors, variant.scripts, sends=variant.sends, cut=variant.cut), 100_000)
    (continued,) = continuations(variant)
    assert told(continued) == {"S": ["b"]}
    assert {name: capture.content for name, capture in continued.restored.items()} == {"D": (("a", 1),)}


def test_a_capture_that_lacks_something_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Relay, context: Context, barrier: CriticalRun) -> None:
        original(self, context, barrier)
        if context.captured is not None:
            context.captured = tuple(item for item in context.captured if item[0] != "a")

    original = Relay._take_snapshot
    monkeypatch.setattr(Relay, "_take_snapshot", forgetful)
    found = explore(small(), 100_000)
    assert (found.verdict, found.variant) == ("violated: snapshot-cut", "small@1")


def test_a_restore_that_lacks_something_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(worker: object, actor: str, capture: CaptureInWorld) -> None:
        original(worker, actor, capture._replace(content=()))  # type: ignore[arg-type]

    original = handlers.restore
    monkeypatch.setattr(handlers, "restore", forgetful)
    found = explore(small("a |1"), 100_000)
    assert found.variant == "small@1+0"
    assert found.verdict == "violated: consolidated-state"


def test_a_barrier_that_never_comes_is_noticed() -> None:
    (variant,) = [each for each in variants(small("a", "x")) if each.name == "small@0.0"]
    scripts = {**variant.scripts, "T": variant.scripts["T"][1:]}
    found = explore(World("lost", "", variant.actors, scripts, sends=variant.sends, cut=variant.cut), 100_000)
    assert found.verdict == "violated: no-deadlock"


def test_a_violation_in_a_variant_is_replayed_by_its_name() -> None:
    with mutant_named("never-gives-way").applied():
        found = explore(world_named("snapshot-gives-way"), 100_000)
        assert found.verdict == "violated: no-deadlock"
        lines = list(replay_moves(world_named(found.variant), [int(number) for number in found.path.split(".")]))
    assert "violation: no-deadlock" in lines[-1]


def test_a_violation_after_a_restore_is_replayed_by_its_name() -> None:
    with mutant_named("restored-without-timers").applied():
        found = explore(world_named("snapshot-timer"), 100_000)
        assert "+" in found.variant
        lines = list(replay_moves(world_named(found.variant), [int(number) for number in found.path.split(".")]))
    assert f"violation: {found.violation}" in lines[-1]


def test_a_variant_that_is_none_is_told() -> None:
    with pytest.raises(KeyError, match=r"there is no variant 'snapshot@9'; there are: snapshot@0, snapshot@1"):
        world_named("snapshot@9")


def test_the_worlds_in_which_a_snapshot_gives_way_are_those_with_a_sync_one_across_it() -> None:
    void = []
    for variant in variants(small("#1 a", "x #1")):
        assert isinstance(variant.cut, TakenSnapshots)
        positions = {source: places[0] for source, places in variant.cut.positions.items()}
        if (positions["S"] > 0) != (positions["T"] > 1):
            void.append(variant.name)
    assert len(void) == 5
    for variant in variants(small("#1 a", "x #1")):
        explored = explore(
            World(variant.name, "", variant.actors, variant.scripts, sends=variant.sends, cut=variant.cut), 9_999
        )
        assert explored.violation is None
        assert isinstance(variant.cut, TakenSnapshots)
        assert bool(variant.cut.cuts) == (variant.name not in void)


def test_the_world_itself_emits_no_snapshot() -> None:
    outputs = [output for steps in small().scripts.values() for step in steps for output in step]
    assert not any(isinstance(output, CriticalOutput) for output in outputs)
