"""The sequential reference: what it computes for a world that fits on a page, and that a difference does not pass."""

import pytest

from dirigo.kernel import CriticalOutput, Granularity, Output
from dirigo_lab.verification.checker import ViolationError
from dirigo_lab.verification.random.reference import EdgeLog, Results, sequential
from dirigo_lab.verification.random.run import RandomRun
from dirigo_lab.verification.random.world import RandomActor, RandomWorld, random_world


def join() -> RandomWorld:
    """Two sources into A, then B; a SYNC_ONE that waits for both, and both end."""
    return RandomWorld(
        "join",
        "two sources into a chain",
        (RandomActor("A", ("B",), upstreams=("s", "t")), RandomActor("B", (), upstreams=("A",))),
        {
            "s": (
                (Output("A", "0/s"),),
                (CriticalOutput("A", "c1/s"),),
                (CriticalOutput("A", "one1", Granularity.ONE),),
                (Output("A", "2/s"),),
                (CriticalOutput("A", "cend/s", final=True),),
            ),
            "t": (
                (CriticalOutput("A", "one1", Granularity.ONE),),
                (Output("A", "0/t"),),
                (CriticalOutput("A", "cend/t", final=True),),
            ),
        },
        sends_to={"s": ("A",), "t": ("A",)},
    )


def test_a_world_that_fits_on_a_page() -> None:
    results = sequential(join())
    assert results.states["A"] == {
        "seen": {"0/s": 1, "2/s": 1, "0/t": 1},
        "criticals": {"c1/s": 1, "one1": 1, "cend/s": 1, "cend/t": 1},
        "ended": {"s": 1, "t": 1},
    }
    assert results.states["B"] == {
        "seen": {"0/sA": 1, "2/sA": 1, "0/tA": 1},
        "criticals": {"c1/sA": 1, "one1": 1, "cend/sA": 1, "cend/tA": 1},
        "ended": {"A": 1},
    }
    between = results.edges["A", "B"]
    assert set(between.placed) == {
        ("0/sA", False, 0, 0),
        ("c1/sA", True, 0, 0),
        ("one1", True, 0, 0),
        ("2/sA", False, 1, 1),
        ("0/tA", False, 1, 0),
        ("cend/sA", True, 1, 1),
        ("cend/tA", True, 1, 0),
    }
    assert between.ends == 1


def test_scripts_that_wait_for_ever_are_refused() -> None:
    world = join()
    scripts = {"s": world.scripts["s"], "t": ()}
    with pytest.raises(ViolationError, match="for ever"):
        sequential(RandomWorld("bad", "", world.actors, scripts, sends_to=world.sends_to))


@pytest.fixture
def done() -> tuple[RandomRun, Results]:
    """A run that was executed, and its reference."""
    run = RandomRun(random_world(1))
    run.execute()
    return run, sequential(run.world)


def test_a_run_equals_its_reference(done: tuple[RandomRun, Results]) -> None:
    run, reference = done
    run.compare(reference)


@pytest.mark.parametrize("name", ["seen", "criticals"])
def test_a_tampered_state_is_noticed(done: tuple[RandomRun, Results], name: str) -> None:
    run, reference = done
    tampered = run.results.states["A"][name]
    tampered[next(iter(tampered))] += 1
    with pytest.raises(ViolationError, match=f"the final state '{name}' of A lacks {{}} and has"):
        run.compare(reference)


def test_a_lost_message_is_noticed(done: tuple[RandomRun, Results]) -> None:
    run, reference = done
    placed = run.results.edges["s", "A"].placed
    del placed[next(iter(placed))]
    with pytest.raises(ViolationError, match="what was sent between s and A lacks"):
        run.compare(reference)


def test_a_missing_end_is_noticed(done: tuple[RandomRun, Results]) -> None:
    run, reference = done
    run.results.edges["s", "A"].ends += 1
    with pytest.raises(ViolationError, match="ends were sent between s and A"):
        run.compare(reference)


def log(*outputs: Output | CriticalOutput) -> EdgeLog:
    made = EdgeLog()
    for output in outputs:
        made.note(output)
    return made


def test_the_place_among_barriers_counts_and_the_order_between_them_does_not() -> None:
    one, two = Output("B", "1/s"), Output("B", "2/s")
    barrier, other = CriticalOutput("B", "c1/s"), CriticalOutput("B", "c1/t")
    together = CriticalOutput("B", "one1", Granularity.ONE)
    assert log(one, two, barrier).placed == log(two, one, barrier).placed
    assert log(one, barrier, two).placed != log(one, two, barrier).placed
    assert log(one, other).placed == log(other, one).placed, "of another way"
    assert log(one, together).placed != log(together, one).placed, "of all ways"


def test_nothing_may_follow_the_end() -> None:
    with pytest.raises(ViolationError, match="nothing-after-the-end"):
        log(CriticalOutput("B", "cend/s", final=True), Output("B", "1/s"))
