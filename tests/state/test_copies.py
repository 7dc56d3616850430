"""Copies of a StateSet, their canonical form, and the size estimate."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dirigo.state import ListState, MapState, Partial, StateSet, StateView, ValueState, add
from dirigo.state.values.copies import private_copy
from dirigo.state.values.equality import agree, equal
from dirigo.state.values.frozen_form import freeze_value


def new_set() -> StateSet:
    return StateSet(
        {
            "total": ValueState(int, default=0, combine=add, replicated=True),
            "items": ListState(list[int]),
            "counts": MapState(str, int, default=0, combine=add),
        }
    )


def filled() -> StateSet:
    states = new_set()
    states.merge(Partial({"total": 3, "items": [[1], [2]], "counts": {"a": 1, "b": 2}}))
    states.install_view(StateView({"total": 10}))
    return states


def through_pickle(states: StateSet) -> StateSet:
    copied = pickle.loads(pickle.dumps(states))
    assert isinstance(copied, StateSet)
    return copied


@pytest.mark.parametrize("duplicate", [StateSet.clone, copy.deepcopy, through_pickle])
def test_a_copy_is_equal_and_independent(duplicate: Callable[[StateSet], StateSet]) -> None:
    original = filled()
    before = original.freeze()
    twin = duplicate(original)
    assert twin.freeze() == before
    assert twin.cell("total").read() == 13

    for item in twin.cell("items"):
        item.append(9)
    twin.cell("total").add(1)
    twin.cell("counts").add("a", 1)
    twin.install_view(None)
    assert twin.freeze() != before
    assert original.freeze() == before
    assert original.cell("total").read() == 13


@pytest.mark.parametrize("value", [[[1]], ([1],), {"k": [1]}, [{1}], ({1: [2]},)], ids=repr)
def test_a_private_copy_shares_nothing_mutable_at_any_depth(value: Any) -> None:
    copied = private_copy(value)
    assert copied == value
    assert type(copied) is type(value)
    assert not mutables_in(copied) & mutables_in(value)


def test_a_private_copy_of_something_immutable_costs_nothing() -> None:
    for value in (1, "text", (1, "a"), frozenset({1})):
        assert private_copy(value) is value


def mutables_in(value: Any) -> set[int]:
    """The identities of all mutable objects in a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()
    found = set() if isinstance(value, (int, str, tuple)) else {id(value)}
    return found.union(*(mutables_in(item) for item in inner))


def test_a_deep_copy_keeps_the_declarations_of_its_class() -> None:
    declaration = ListState(int)
    assert copy.deepcopy({"x": declaration})["x"] is declaration


def test_a_clone_needs_no_picklable_combine() -> None:
    states = StateSet({"x": ValueState(int, default=0, combine=lambda left, right: left + right)})
    states.cell("x").add(2)
    twin = states.clone()
    twin.cell("x").add(2)
    assert (states.cell("x").get(), twin.cell("x").get()) == (2, 4)


def test_a_pickled_object_keeps_its_cells_tied_to_its_set() -> None:
    states = filled()
    cell, restored = pickle.loads(pickle.dumps((states.cell("total"), states)))
    cell.add(1)
    assert restored.cell("total").get() == 4


class TestFreeze:
    def test_it_is_hashable_and_ignores_insertion_order_of_maps(self) -> None:
        one, other = new_set(), new_set()
        for key in ("a", "b"):
            one.cell("counts").add(key, 1)
        for key in ("b", "a"):
            other.cell("counts").add(key, 1)
        assert one.freeze() == other.freeze()
        assert len({one.freeze(), other.freeze()}) == 1

    @pytest.mark.parametrize(
        "change",
        [
            lambda states: states.cell("total").add(1),
            lambda states: states.cell("items").append([3]),
            lambda states: states.cell("counts").add("a", 1),
            lambda states: states.install_view(StateView({"total": 11})),
            lambda states: states.install_view(None),
            lambda states: states.take(),
        ],
    )
    def test_any_difference_shows(self, change: Callable[[StateSet], Any]) -> None:
        states = filled()
        change(states)
        assert states.freeze() != filled().freeze()

    def test_a_list_state_is_the_tuple_of_its_items(self) -> None:
        states = StateSet({"x": ListState(int)})
        states.cell("x").extend([3, 1, 2])
        assert states.freeze() == (("x", (3, 1, 2), ()),)

    def test_a_base_that_is_none_is_not_the_same_as_no_base(self) -> None:
        states = StateSet({"x": ValueState(int, default=None, combine=max_or_none, replicated=True)})
        without = states.freeze()
        states.install_view(StateView({"x": None}))
        assert states.freeze() != without


def max_or_none(left: int | None, right: int | None) -> int | None:
    return max((item for item in (left, right) if item is not None), default=None)


@dataclass
class Point:
    x: int
    tags: list[str]


class Bare:
    """No __eq__: Python compares it by address."""

    def __init__(self, inner: object) -> None:
        self.inner = inner


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner: object) -> None:
        self.inner = inner


class Vector:
    """Compares element by element, as numpy arrays do."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *numbers: float) -> None:
        self.numbers = numbers
        self.shape = (len(numbers),)

    def __eq__(self, other: object) -> "Vector":  # type: ignore[override]
        assert isinstance(other, Vector)
        return Vector(*(left == right for left, right in zip(self.numbers, other.numbers, strict=True)))

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(*(left + right for left, right in zip(self.numbers, other.numbers, strict=True)))

    def all(self) -> bool:
        return all(self.numbers)


MAKERS: list[Callable[[int], Any]] = [
    lambda n: n,
    lambda n: [n],
    lambda n: {n},
    lambda n: {"k": [n]},
    lambda n: Point(n, ["a"]),
    lambda n: Bare([n]),
    lambda n: Slotted([n]),
    lambda n: Vector(n, 0.0),
    lambda n: (1, Vector(n, 0.0)),
]


@pytest.mark.parametrize("make", MAKERS)
def test_equal_values_have_equal_hashable_forms_and_others_do_not(make: Callable[[int], Any]) -> None:
    assert equal(make(1), make(1))
    assert not equal(make(1), make(2))
    assert freeze_value(make(1)) == freeze_value(make(1))
    assert freeze_value(make(1)) != freeze_value(make(2))
    hash(freeze_value(make(1)))


def test_forms_keep_types_of_containers_apart_and_accept_nan() -> None:
    assert len({freeze_value([1]), freeze_value((1,)), freeze_value({1}), freeze_value(frozenset({1}))}) == 4
    assert freeze_value(float("nan")) == freeze_value(float("nan"))
    assert equal(float("nan"), -float("nan"))


def test_agreement_forgives_rounding_only() -> None:
    assert agree((0.1 + 0.2, {"a": [0.3]}), (0.3, {"a": [0.1 + 0.2]}))
    assert not agree((0.3,), (0.3001,))
    assert not agree([1], (1,))
    assert not agree({"a": 1}, {"b": 1})


def test_array_like_and_bare_values_work_as_states() -> None:
    declaration = ValueState(Vector, default=Vector(0.0, 0.0), combine=add)
    lessor, lessee = StateSet({"sum": declaration}), StateSet({"sum": declaration})
    assert lessee.is_identity()
    lessee.cell("sum").add(Vector(1.0, -0.0))
    lessor.merge(lessor.decode(lessor.encode(lessee.take())))
    assert lessor.cell("sum").get().numbers == (1.0, 0.0)
    assert lessee.is_identity()

    bare = StateSet({"x": ValueState(Bare, default=Bare(0), combine=lambda left, right: right if right.inner else left)})
    assert bare.is_identity()
    bare.cell("x").add(Bare(4))
    assert bare.take().values["x"].inner == 4
    assert bare.is_identity()


class TestSize:
    def test_states_at_identity_count_nothing(self) -> None:
        assert new_set().size_bytes() == 0

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("items", [list(range(1000, 1010)) for _ in range(500)]),
            ("counts", {f"key-{number}": number + 2**40 for number in range(2000)}),
            ("total", 2**50),
        ],
    )
    def test_it_is_about_the_encoded_size_for_uniform_contents(self, name: str, value: Any) -> None:
        states = new_set()
        states.merge(Partial({name: value}))
        encoded = len(states.encode(states.clone().take()))
        assert encoded / 2 <= states.size_bytes() <= encoded * 2

    def test_it_grows_with_the_contents_also_when_changed_in_place(self) -> None:
        states = StateSet({"seen": ValueState(set[int], default=set(), combine=lambda left, right: left | right)})
        states.cell("seen").add({1})
        before = states.size_bytes()
        states.cell("seen").get().update(range(1000))
        assert states.size_bytes() > 10 * before

    def test_its_cost_does_not_grow_with_the_contents(self) -> None:
        measured = []

        class Spy(str):
            __slots__ = ()

            def __len__(self) -> int:
                measured.append(self)
                return super().__len__()

        states = StateSet({"items": ListState(str)})
        states.cell("items").extend(Spy("text") for _ in range(10_000))
        states.size_bytes()
        assert 0 < len(measured) < 50
