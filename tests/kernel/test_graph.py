"""A job's graph is checked when it is submitted, and the error says where it is wrong."""

import pytest

from dirigo.kernel import Directory, FunctionSpec, GraphError, States
from dirigo.state import StateSet
from kernel.scenario import Recorder


def spec(name: str, upstreams: str = "", downstreams: str = "") -> FunctionSpec:
    def behaviour(states: States) -> Recorder:
        return Recorder(states, {})

    return FunctionSpec(name, 0, behaviour, lambda: StateSet({}), tuple(upstreams), tuple(downstreams))


def test_a_sound_graph_is_known_after_it_was_added() -> None:
    directory = Directory()
    job = [spec("a", "s", "bc"), spec("b", "a", "d"), spec("c", "a", "d"), spec("d", "bc")]
    directory.add_job(job)
    assert list(directory) == job
    assert directory["d"].upstreams == ("b", "c")
    assert "d" in directory
    assert "s" not in directory  # a source is a participant of its own, not a function


def test_an_actor_of_no_job_is_named_in_the_error() -> None:
    with pytest.raises(GraphError) as caught:
        Directory()["job/x/0"]
    assert str(caught.value) == "no job here has an actor 'job/x/0'; submit the job before sending to it"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("job", "cycle"),
    [
        ([spec("a", "a", "a")], "a -> a"),
        ([spec("a", "b", "b"), spec("b", "a", "a")], "a -> b -> a"),
        ([spec("a", "", "b"), spec("b", "ad", "c"), spec("c", "b", "d"), spec("d", "c", "b")], "b -> c -> d -> b"),
        ([spec("a", "", "bc"), spec("b", "ac", ""), spec("c", "ad", "bd"), spec("d", "c", "c")], "c -> d -> c"),
        ([spec("a", "", "c"), spec("c", "ad", "bd"), spec("b", "c", ""), spec("d", "c", "c")], "c -> d -> c"),
    ],
)
def test_a_cycle_is_named_in_the_error(job: list[FunctionSpec], cycle: str) -> None:
    directory = Directory()
    with pytest.raises(GraphError) as caught:
        directory.add_job(job)
    assert str(caught.value) == f"the graph has a cycle: {cycle}; a job must be acyclic"
    assert list(directory) == []


def test_two_ways_to_one_actor_are_no_cycle() -> None:
    Directory().add_job([spec("a", "", "bcd"), spec("b", "a", "d"), spec("c", "a", "d"), spec("d", "abc")])


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ([spec("a", "", "x")], "a sends to x, which is not part of the job"),
        ([spec("a", "", "b"), spec("b")], "a sends to b, which does not name it as an upstream"),
        ([spec("a"), spec("b", "a")], "b names a as an upstream, which does not send to it"),
    ],
)
def test_edges_that_disagree_are_named_in_the_error(job: list[FunctionSpec], text: str) -> None:
    directory = Directory()
    with pytest.raises(GraphError) as caught:
        directory.add_job(job)
    assert str(caught.value) == text
    assert list(directory) == []


def test_a_long_chain_is_checked_without_recursion() -> None:
    names = [f"actor{number}" for number in range(3000)]
    chain = [
        FunctionSpec(
            name, 0, spec("a").behaviour, spec("a").states, tuple(names[i - 1 : i]) if i else (), tuple(names[i + 1 : i + 2])
        )
        for i, name in enumerate(names)
    ]
    directory = Directory()
    directory.add_job(chain)
    assert len(list(directory)) == 3000
