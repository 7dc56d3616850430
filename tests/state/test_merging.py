"""Partial states add up: however updates are spread over instances, the merged result is the sequential one."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.state import (
    CombineError,
    Declaration,
    ListState,
    MapState,
    Partial,
    StateError,
    StateSet,
    ValueState,
    add,
    maximum,
    merge_average,
    minimum,
    union,
)

NUMBERS = st.integers(-1000, 1000)

# (declaration, strategy of one update): every ready-made combine function, and plain functions of a user.
VALUE_CASES: list[tuple[ValueState[Any], st.SearchStrategy[Any]]] = [
    (ValueState(int, default=0, combine=add), NUMBERS),
    (ValueState(int, default=0, combine=max), NUMBERS),  # default 0 with negative numbers is sound, too
    (ValueState(int, default=None, combine=maximum), NUMBERS),
    (ValueState(int, default=None, combine=minimum), NUMBERS),
    (ValueState(frozenset[int], default=frozenset(), combine=union), st.frozensets(NUMBERS)),
    (ValueState(tuple[float, int], default=(0.0, 0), combine=merge_average), st.tuples(NUMBERS, st.just(1))),
    (ValueState(set[int], default=set(), combine=lambda left, right: left | right), st.sets(NUMBERS)),
]


def in_place_union(left: set[int], right: set[int]) -> set[int]:
    left |= right
    return left


def spread_and_merge(
    data: st.DataObject, make: Callable[[], StateSet], updates: list[Any], apply: Callable[[StateSet, Any], None]
) -> StateSet:
    """Apply each update at some instance, with takes at some points in between; merge all takes in some order."""
    instances = [make() for _ in range(data.draw(st.integers(1, 4), label="instances"))]
    partials = []
    for update in updates:
        instance = data.draw(st.sampled_from(instances))
        apply(instance, update)
        if data.draw(st.booleans()):
            partials.append(instance.take())
    partials.extend(instance.take() for instance in instances)
    lessor = make()
    for partial in data.draw(st.permutations(partials), label="arrival order"):
        lessor.merge(lessor.decode(lessor.encode(partial)))
    return lessor


@pytest.mark.parametrize("case", range(len(VALUE_CASES)))
@given(data=st.data())
def test_value_updates_add_up(case: int, data: st.DataObject) -> None:
    declaration, update_strategy = VALUE_CASES[case]
    updates = data.draw(st.lists(update_strategy, max_size=12))

    def apply(instance: StateSet, update: Any) -> None:
        instance.cell("state").add(update)

    merged = spread_and_merge(data, lambda: StateSet({"state": declaration}), updates, apply)
    expected = declaration.default
    for update in updates:
        expected = declaration.combine(expected, update)
    assert merged.cell("state").get() == expected


@given(data=st.data(), updates=st.lists(st.integers(0, 9), max_size=12))
def test_list_items_add_up_as_a_multiset(data: st.DataObject, updates: list[int]) -> None:
    def apply(instance: StateSet, update: int) -> None:
        instance.cell("state").append(update)

    merged = spread_and_merge(data, lambda: StateSet({"state": ListState(int)}), updates, apply)
    assert Counter(merged.cell("state")) == Counter(updates)


@pytest.mark.parametrize("options", [{}, {"default": 0}], ids=["without default", "with default"])
@given(data=st.data(), updates=st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=12))
def test_map_entries_add_up_per_key(options: dict[str, int], data: st.DataObject, updates: list[tuple[str, int]]) -> None:
    declaration = MapState(str, int, combine=add, **options)  # type: ignore[arg-type]

    def apply(instance: StateSet, update: tuple[str, int]) -> None:
        instance.cell("state").add(*update)

    merged = spread_and_merge(data, lambda: StateSet({"state": declaration}), updates, apply)
    expected: dict[str, int] = {}
    for key, value in updates:
        expected[key] = expected.get(key, 0) + value
    assert dict(merged.cell("state").items()) == expected


def test_take_leaves_the_identity_and_moves_only_what_changed() -> None:
    states = StateSet(
        {
            "total": ValueState(int, default=0, combine=add),
            "items": ListState(str),
            "counts": MapState(str, int, combine=add),
            "untouched": ValueState(int, default=0, combine=add),
        }
    )
    states.cell("total").add(3)
    states.cell("items").append("a")
    states.cell("counts")["k"] = 1
    assert not states.is_identity()

    assert states.take() == Partial({"total": 3, "items": ["a"], "counts": {"k": 1}})
    assert states.is_identity()
    assert len(states.take()) == 0
    assert (states.cell("total").get(), list(states.cell("items")), len(states.cell("counts"))) == (0, [], 0)


def test_a_cell_stays_valid_after_take() -> None:
    states = StateSet({"items": ListState(int)})
    cell = states.cell("items")
    cell.append(1)
    taken = states.take()
    cell.append(2)
    assert taken.values["items"] == [1]
    assert list(states.cell("items")) == [2]


def test_a_value_changed_in_place_is_taken() -> None:
    states = StateSet({"seen": ValueState(set[int], default=set(), combine=in_place_union)})
    states.cell("seen").get().add(7)
    assert states.take() == Partial({"seen": {7}})


def test_instances_never_share_a_mutable_default() -> None:
    default: set[int] = set()
    declaration = ValueState(set[int], default=default, combine=in_place_union)
    first, second = StateSet({"seen": declaration}), StateSet({"seen": declaration})
    first.cell("seen").add({1})
    first.take()
    first.cell("seen").add({2})
    default.add(99)
    assert first.cell("seen").get() == {2}
    assert second.cell("seen").get() == set()
    assert declaration.default == set()


@pytest.mark.parametrize(
    ("declaration", "value", "spoil"),
    [
        (ValueState(set[int], default=set(), combine=in_place_union), {1}, lambda held: held.clear()),
        # This combine returns one of its arguments itself.
        (ValueState(list[int], default=None, combine=maximum), [1], lambda held: held.clear()),
        (ListState(list[int]), [[1]], lambda held: held[0].clear()),
        (MapState(str, set[int], combine=in_place_union), {"k": {1}}, lambda held: held["k"].clear()),
    ],
)
def test_a_merged_partial_is_neither_changed_nor_shared(
    declaration: Declaration, value: Any, spoil: Callable[[Any], None]
) -> None:
    partial = Partial({"state": value})
    before = partial.freeze()
    first, second = StateSet({"state": declaration}), StateSet({"state": declaration})
    for receiver in (first, second):
        receiver.merge(partial)
        receiver.merge(partial)
    untouched = second.freeze()
    spoil(first.take().values["state"])
    assert partial.freeze() == before
    assert second.freeze() == untouched


def test_the_default_of_an_absent_key_is_a_copy_that_is_not_stored() -> None:
    states = StateSet({"counts": MapState(str, list[int], default=[], combine=lambda left, right: left + right)})
    states.cell("counts")["absent"].append(1)
    assert states.cell("counts")["absent"] == []
    assert "absent" not in states.cell("counts")


class TestIdentityLaw:
    def test_a_sum_with_default_100_is_refused_at_declaration(self) -> None:
        with pytest.raises(CombineError, match=r"default 100, .* once per worker"):
            ValueState(int, default=100, combine=add)
        with pytest.raises(CombineError, match=r"default 100, .* once per worker"):
            MapState(str, int, default=100, combine=add)

    def test_a_combine_that_fails_on_its_default_is_refused_at_declaration(self) -> None:
        with pytest.raises(CombineError, match="make combine accept the default"):
            ValueState(float, default=0.0, combine=lambda left, right: left / right)

    def test_a_combine_that_forgets_to_return_is_refused_at_declaration(self) -> None:
        with pytest.raises(CombineError, match="gives None"):
            ValueState(set[int], default=set(), combine=lambda left, right: left.update(right))  # type: ignore[arg-type, return-value]

    # A product with default 0 keeps the default itself, so that only a real value shows the mistake.
    def product(self, **options: Any) -> ValueState[int]:
        return ValueState(int, default=0, combine=lambda left, right: left * right, **options)

    def test_merge_refuses_a_default_that_changes_a_value_and_names_the_state(self) -> None:
        states = StateSet({"other": ListState(int), "odds": self.product()})
        with pytest.raises(CombineError, match=r"State 'odds' .* default 0 with 5 gives 0: .* once per worker"):
            states.merge(Partial({"other": [1], "odds": 5}))
        assert states.is_identity()  # a refused partial changes nothing

    def test_add_refuses_it_before_there_is_any_lessee(self) -> None:
        states = StateSet({"odds": ValueState(int, default=2, combine=lambda left, right: left * right - 2)})
        with pytest.raises(CombineError, match="'odds'"):
            states.cell("odds").add(5)

    def test_a_map_with_a_default_is_checked_value_by_value(self) -> None:
        states = StateSet({"odds": MapState(str, int, default=0, combine=lambda left, right: left * right)})
        with pytest.raises(CombineError, match="'odds'"):
            states.merge(Partial({"odds": {"a": 0, "b": 5}}))

    def test_a_map_without_default_has_no_identity_to_check(self) -> None:
        states = StateSet({"odds": MapState(str, int, combine=lambda left, right: left * right)})
        states.merge(Partial({"odds": {"a": 3}}))
        states.merge(Partial({"odds": {"a": 5}}))
        assert states.cell("odds")["a"] == 15

    def test_the_number_of_checks_is_bounded(self) -> None:
        calls = []

        def counting_add(left: int, right: int) -> int:
            calls.append(1)
            return left + right

        states = StateSet({"total": ValueState(int, default=0, combine=counting_add)})
        calls.clear()
        for _ in range(1000):
            states.merge(Partial({"total": 1}))
        assert 1000 < len(calls) <= 1000 + 16

    def test_rounding_and_nan_are_no_breach(self) -> None:
        def merge_means(left: tuple[float, float], right: tuple[float, float]) -> tuple[float, float]:
            count = left[1] + right[1]
            mean = (left[0] * left[1] + right[0] * right[1]) / count if count else 0.0
            return (mean, count)

        states = StateSet(
            {
                "mean": ValueState(tuple[float, float], default=(0.0, 0.0), combine=merge_means),
                "top": ValueState(float, default=0.0, combine=max),
            }
        )
        states.merge(Partial({"mean": (0.1, 3.0), "top": float("nan")}))  # 0.1 * 3.0 / 3.0 is not 0.1
        assert states.cell("mean").get() != (0.1, 3.0)


def test_unknown_states_are_refused_with_advice() -> None:
    states = StateSet({"total": ValueState(int, default=0, combine=add)})
    with pytest.raises(StateError, match=r"'totl'.*'total'"):
        states.cell("totl")
    with pytest.raises(StateError, match="'other', which is not declared here"):
        states.merge(Partial({"other": 1}))
