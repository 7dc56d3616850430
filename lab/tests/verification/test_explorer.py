"""The explorer: it reaches everything, repeats itself, tells the shortest story, and notices worlds that prove little."""

import pytest

from dirigo.kernel import Context, CriticalRun, Granularity
from dirigo.kernel.lessor import Lessor
from dirigo_lab.verification.explorer import Explorer
from dirigo_lab.verification.handlers import Chooser
from dirigo_lab.verification.mutants import mutant_named
from dirigo_lab.verification.replay import replay_moves
from dirigo_lab.verification.world import Actor, Relay, World, script
from dirigo_lab.verification.worlds import DEEP_WORLDS, WORLDS, world_named


def small(**options: object) -> World:
    return World("small", "", (Actor("D", lessees=1, **options),), {"S": script("D", "a |1 b")})  # type: ignore[arg-type]


def test_a_chooser_enumerates_every_sequence_of_answers() -> None:
    chooser, seen = Chooser(), []
    answers: list[int] | None = []
    while answers is not None:
        chooser.restart(answers)
        first = chooser(2)
        seen.append((first, chooser(3) if first else None))
        answers = chooser.following()
    assert seen == [(0, None), (1, 0), (1, 1), (1, 2)]


def test_a_world_without_any_choice_has_every_order_of_its_three_deliveries() -> None:
    # By hand: "a" arrives and runs; the program arrives, then "b" can (the acknowledgment is immediate); the critical
    # message runs after "a" ran and the program came; "b" runs last. That order has 12 sets closed under "before".
    found = Explorer(World("line", "", (Actor("D"),), {"S": script("D", "a |1 b")})).search()
    assert found.verdict == "holds"
    assert (found.states, found.longest) == (12, 6)


def test_a_search_repeats_itself_exactly() -> None:
    first, second = Explorer(small()).search(), Explorer(small()).search()
    assert (first.states, first.transitions, first.longest) == (second.states, second.transitions, second.longest)
    assert first.verdict == "holds"


def test_a_bound_on_the_states_is_told() -> None:
    found = Explorer(world_named("two-barriers")).search(states_max=500)
    assert found.verdict == "bounded"
    assert 500 <= found.states < 5_000


def test_a_world_with_nothing_after_the_barrier_is_hollow() -> None:
    world = World("empty", "", (Actor("D", lessees=1),), {"S": script("D", "a |1")})
    assert Explorer(world).search().verdict == "hollow: forward, source to lessor"


def test_a_violation_comes_with_the_shortest_story_and_a_path_that_replays_it() -> None:
    mutant = mutant_named("merge-twice")
    with mutant.applied():
        found = Explorer(small()).search()
        assert found.verdict == "violated: consolidated-state"
        assert found.violation is not None
        told = list(replay_moves(small(), [int(number) for number in found.path.split(".")]))
    assert len(found.story) == 7
    assert told[-1].strip() == f"violation: {found.violation}"
    assert [line.split(". ", 1)[1] for line in told if line[0].isdigit()] == found.story


def test_a_violation_at_the_end_of_a_run_has_its_whole_story() -> None:
    with mutant_named("drop-receipt-ack").applied():
        found = Explorer(small()).search()
        assert found.verdict == "violated: acknowledged"
        told = list(replay_moves(small(), [int(number) for number in found.path.split(".")]))
    assert "violation: acknowledged" in told[-1]


def test_a_replay_refuses_a_move_that_is_not_possible() -> None:
    with pytest.raises(IndexError, match="step 1 picks move 99, but only"):
        list(replay_moves(small(), [99]))


def test_a_protocol_error_of_the_kernel_is_a_violation_that_names_the_rule() -> None:
    with mutant_named("returns-overtaken").applied():
        found = Explorer(world_named("handed-back")).search()
    assert found.verdict == "violated: table"
    assert "its story so far" in str(found.violation)


def test_user_code_that_miscounts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Relay, context: Context, payload: str) -> None:
        if payload != "a":
            original(self, context, payload)

    original = Relay.on_message
    monkeypatch.setattr(Relay, "on_message", forgetful)
    assert Explorer(small()).search().verdict == "violated: consolidated-state"


def test_user_code_that_does_not_propagate_is_no_violation() -> None:
    swallows = Actor("U", ("D",), lessees=1, swallows=frozenset({"1"}))
    assert Explorer(World("quiet", "", (swallows, Actor("D")), {"S": script("U", "a |1 b")})).search().violation is None


def test_an_error_of_the_kernel_in_what_happens_at_once_has_its_story() -> None:
    found = Explorer(World("late", "", (Actor("D"),), {"S": script("D", "a . b")})).search()
    assert found.verdict == "violated: nothing-after-the-end"
    assert found.story[-1].startswith("lessor D@w1 receives SyncProgram")


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_world_is_small_enough_to_read(world: World) -> None:
    assert world.about
    assert len(world.actors) <= 3
    assert world.workers <= 8


def test_worlds_have_names_of_their_own() -> None:
    names = [world.name for world in (*WORLDS, *DEEP_WORLDS)]
    assert len(set(names)) == len(names)
    with pytest.raises(KeyError, match="there is no world 'nowhere'; there are: two-barriers"):
        world_named("nowhere")


def test_a_critical_run_of_a_sync_one_has_a_part_of_every_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[CriticalRun] = []
    original = Relay.on_critical

    def noted(self: Relay, context: Context, critical: CriticalRun) -> None:
        runs.append(critical)
        original(self, context, critical)

    monkeypatch.setattr(Relay, "on_critical", noted)
    world = World("both", "", (Actor("D"),), {"S": script("D", "a #1 b"), "T": script("D", "x #1 y")})
    assert Explorer(world).search().verdict == "holds"
    assert {run.granularity for run in runs} == {Granularity.ONE}
    assert {tuple(sender for sender, _, _ in run.parts) for run in runs} == {("S", "T")}


def test_mutants_leave_the_kernel_as_it_was() -> None:
    before = Lessor._consolidate
    with mutant_named("merge-twice").applied():
        assert Lessor._consolidate is not before
        assert Explorer(small()).search().violation is not None
    assert Lessor._consolidate is before
