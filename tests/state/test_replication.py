"""A replicated state is read as base combined with the own part, and only the own part travels."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.state import ListState, MapState, Partial, StateError, StateSet, StateView, ValueState, add

SMALL = st.integers(-9, 9)
ENTRIES = st.dictionaries(st.sampled_from("abc"), SMALL)


def new_set() -> StateSet:
    return StateSet(
        {
            "total": ValueState(int, default=0, combine=add, replicated=True),
            "items": ListState(int, replicated=True),
            "counts": MapState(str, int, default=0, combine=add, replicated=True),
            "private": ValueState(int, default=0, combine=add),
        }
    )


def filled(total: int, items: list[int], counts: dict[str, int]) -> StateSet:
    states = new_set()
    states.cell("total").add(total)
    states.cell("items").extend(items)
    for key, value in counts.items():
        states.cell("counts").add(key, value)
    states.cell("private").add(total)
    return states


FILLED = st.builds(filled, SMALL, st.lists(SMALL), ENTRIES)


def whole(states: StateSet) -> tuple[int, Counter[int], dict[str, int]]:
    return (states.cell("total").read(), Counter(states.cell("items").read()), states.cell("counts").read())


@given(lessor=FILLED, lessee=FILLED)
def test_read_is_the_merge_of_base_and_delta_and_only_the_delta_travels(lessor: StateSet, lessee: StateSet) -> None:
    delta = lessee.clone().take()
    view = lessor.view()
    assert view is not None
    lessee.install_view(lessee.decode_view(lessor.encode_view(view)))
    merged = lessor.clone()
    merged.merge(delta)

    assert whole(lessee) == whole(merged)
    for key in "abc":
        assert lessee.cell("counts").read_key(key) == merged.cell("counts")[key]
    assert lessee.take() == delta
    assert lessee.is_identity()
    assert whole(lessee) == whole(lessor)  # the base is still there
    assert len(lessee.take()) == 0


def test_a_new_view_replaces_the_former_base_and_none_removes_it() -> None:
    lessee = new_set()
    lessee.cell("total").add(1)
    lessee.install_view(StateView({"total": 10, "items": [1], "counts": {"a": 1}}))
    lessee.install_view(StateView({"total": 20, "items": [2], "counts": {"b": 2}}))
    assert whole(lessee) == (21, Counter([2]), {"b": 2})
    assert lessee.cell("total").get() == 1
    lessee.install_view(None)
    assert whole(lessee) == (1, Counter(), {})


def test_a_view_holds_the_replicated_states_only() -> None:
    view = filled(1, [2], {"a": 3}).view()
    assert view == StateView({"total": 1, "items": [2], "counts": {"a": 3}})
    assert StateSet({"x": ListState(int)}).view() is None


def test_a_base_for_a_state_that_is_not_replicated_is_refused() -> None:
    with pytest.raises(StateError, match="'private' cannot have a base"):
        new_set().install_view(StateView({"private": 1}))
    with pytest.raises(StateError, match="'nowhere', which is not declared"):
        new_set().install_view(StateView({"nowhere": 1}))


def in_place_extend(left: list[int], right: list[int]) -> list[int]:
    left.extend(right)
    return left


def test_neither_the_lessor_nor_a_reader_can_change_a_view() -> None:
    declarations: dict[str, Any] = {
        "value": ValueState(list[int], default=[], combine=in_place_extend, replicated=True),
        "items": ListState(list[int], replicated=True),
        "map": MapState(str, list[int], combine=in_place_extend, replicated=True),
    }
    lessor, lessee = StateSet(declarations), StateSet(declarations)
    lessor.merge(Partial({"value": [1], "items": [[1]], "map": {"k": [1]}}))
    view = lessor.view()
    assert view is not None
    before = view.freeze()
    lessee.install_view(view)

    for states in (lessor, lessee):
        states.merge(Partial({"value": [2], "items": [[2]], "map": {"k": [2]}}))
        for item in states.cell("items"):
            item.append(8)
        states.cell("value").read().append(9)
        states.cell("items").read()[0].append(9)
        states.cell("map").read()["k"].append(9)
        states.cell("map").read_key("k").append(9)
    assert view.freeze() == before
