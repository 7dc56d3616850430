"""Random runs with crashes, and the model of who takes snapshots in them."""

from collections.abc import Callable

import pytest

from dirigo.kernel import Kept
from dirigo_lab.verification.checker import ViolationError
from dirigo_lab.verification.mutants import mutant_named
from dirigo_lab.verification.random.coordinator import ModelCoordinator, ModelManifest, ModelStorage, ScriptPosition
from dirigo_lab.verification.random.generations import generation_of
from dirigo_lab.verification.random.recovery import CrashError, CrashPlan, recover, run_recoveries
from dirigo_lab.verification.random.world import letter_of, random_world
from dirigo_lab.verification.snapshots.naming import CaptureInWorld

CAPTURE = CaptureInWorld({}, Kept((), ()))


def manifest(number: int) -> ModelManifest:
    return ModelManifest(number, {}, {}, frozenset({"B"}))


class Desk:
    """A coordinator of sources s and t, and actors A (behind s) and B (behind A and t, a sink)."""

    def __init__(self) -> None:
        self.storage = ModelStorage()
        self.steps: list[str] = []
        self.todo: list[Callable[[], None]] = []
        self.rests: dict[str, CaptureInWorld] = {}
        upstreams = {"A": ("s",), "B": ("A", "t")}
        self.coordinator = ModelCoordinator(
            2, self.storage, upstreams, frozenset({"B"}), self.todo.append, self.steps.append, self.rests.get
        )

    def tells(self, **positions: ScriptPosition) -> None:
        for source, position in positions.items():
            self.coordinator.on_position(2, 1, source, position)

    def works(self) -> None:
        while self.todo:
            self.todo.pop(0)()


RUNS, ENDED = ScriptPosition(3, False), ScriptPosition(5, True)


def test_a_snapshot_exists_once_every_source_and_every_actor_has_told() -> None:
    desk = Desk()
    assert desk.coordinator.order() == 1
    desk.storage.prepare("B", 1, ("x",))
    desk.tells(s=RUNS, t=RUNS)
    desk.coordinator.on_capture(2, 1, "A", CAPTURE)
    desk.works()
    assert desk.storage == ModelStorage(prepared={("B", 1): ("x",)})
    desk.coordinator.on_capture(2, 1, "B", CAPTURE)
    desk.works()
    (made,) = desk.storage.manifests
    assert (made.number, dict(made.positions), set(made.captures)) == (1, {"s": RUNS, "t": RUNS}, {"A", "B"})
    assert desk.storage.committed == {("B", 1): ("x",)}
    assert desk.steps[-3:] == ["manifest", "commit", "commit"]
    assert desk.coordinator.order() == 2


def test_actors_that_no_barrier_reaches_are_captured_once_they_rest() -> None:
    desk = Desk()
    desk.coordinator.order()
    desk.tells(s=ENDED, t=RUNS)
    desk.coordinator.on_capture(2, 1, "B", CAPTURE)
    desk.todo.pop(0)()  # A has its last barrier still to run
    assert not desk.storage.manifests
    desk.rests["A"] = CAPTURE
    desk.works()
    assert set(desk.storage.manifests[0].captures) == {"A", "B"}


def test_reports_of_an_earlier_generation_or_of_another_snapshot_are_ignored() -> None:
    desk = Desk()
    desk.coordinator.order()
    desk.coordinator.on_capture(1, 1, "A", CAPTURE)
    desk.coordinator.on_void(1, 1)
    desk.coordinator.on_capture(2, 7, "A", CAPTURE)
    assert desk.coordinator.under is not None
    assert desk.coordinator.under.captures == {}
    assert desk.coordinator.ignored == 2


def test_a_snapshot_that_gave_way_is_forgotten_and_what_was_prepared_for_it_goes_with_the_next() -> None:
    desk = Desk()
    desk.coordinator.order()
    desk.storage.prepare("B", 1, ("x",))
    desk.coordinator.on_void(2, 1)
    assert desk.coordinator.under is None
    desk.storage.prepare("B", 2, ("y",))
    desk.storage.commit("B", 2)
    assert desk.storage.committed == {("B", 1): ("x",), ("B", 2): ("y",)}


def test_a_recovery_finishes_what_the_newest_manifest_lists_and_forgets_the_rest() -> None:
    storage = ModelStorage(manifests=[manifest(1), manifest(2)], committed={("B", 1): ("x",)})
    storage.prepare("B", 2, ("y",))
    storage.prepare("B", 3, ("z",))
    assert storage.begin_again() == manifest(2)
    assert storage.begin_again() == manifest(2)
    assert (storage.committed, storage.prepared) == ({("B", 1): ("x",), ("B", 2): ("y",)}, {})
    assert ModelStorage().begin_again() is None


def test_a_crash_comes_before_the_nth_of_what_it_was_set_for() -> None:
    fate = CrashPlan("commit", 2)
    fate.meet("commit")
    fate.meet("report")
    with pytest.raises(CrashError):
        fate.meet("commit")
    CrashPlan().meet("commit")


def test_a_generation_has_the_same_graph_and_input_under_names_of_its_own() -> None:
    world = random_world(5)
    first, second = generation_of(world, 0), generation_of(world, 2)
    assert {actor.name for actor in first.actors} == {f"job/{actor.name}" for actor in world.actors}
    assert {actor.name for actor in second.actors} == {f"job.2/{actor.name}" for actor in world.actors}
    for one in (first, second):
        for source, steps in one.scripts.items():
            was = world.scripts[letter_of(source)]
            assert [[output.payload for output in step] for step in steps] == [
                [output.payload for output in step] for step in was
            ]
    assert first.placement != second.placement


def test_a_run_repeats_itself() -> None:
    assert recover(3) == recover(3)


def test_runs_with_crashes_meet_every_kind_of_crash_and_no_difference() -> None:
    report = run_recoveries(range(80))
    assert report.ok, report.summary()
    assert not report.is_hollow()
    assert report.totals["stale_messages"]
    assert report.totals["stale_reports"]
    assert report.totals["voids"]


def test_a_violation_names_its_seed() -> None:
    with mutant_named("position-before-the-read").applied(), pytest.raises(ViolationError, match="seed 1: "):
        recover(1)


def test_a_report_in_which_nothing_was_restored_is_not_ok() -> None:
    assert run_recoveries([]).is_hollow()
