"""The agenda: things come up when they are due, however often they were put off, and it does not grow by that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.state import NO_KEY, Agenda, StateError


def taken(agenda: Agenda[str, int], due: dict[str, int], until: int) -> list[tuple[int, list[str]]]:
    found = []
    while (next_ones := agenda.take_next(until, due.get)) is not None:
        found.append((next_ones[0], sorted(next_ones[1])))
    return found


def test_things_come_up_in_order_and_together() -> None:
    due = {"a": 5, "b": 3, "c": 5, "d": 9}
    agenda: Agenda[str, int] = Agenda()
    for item, number in due.items():
        agenda.note(item, number)
    assert agenda.next_due() == 3
    assert taken(agenda, due, 8) == [(3, ["b"]), (5, ["a", "c"])]
    assert taken(agenda, due, 8) == []
    assert taken(agenda, due, 9) == [(9, ["d"])]
    assert agenda.next_due() is None


def test_putting_off_costs_no_room() -> None:
    agenda: Agenda[str, int] = Agenda()
    due: dict[str, int] = {}
    for number in range(1_000):
        due["a"] = number
        agenda.note("a", number)
    assert len(agenda) == len(agenda._heap) == 1
    assert taken(agenda, due, 998) == []
    assert taken(agenda, due, 999) == [(999, ["a"])]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 20)), st.integers(0, 20))))
def test_it_is_what_a_search_through_all_things_would_find(steps: list[tuple[str, int | None, int]]) -> None:
    agenda: Agenda[str, int] = Agenda()
    due: dict[str, int] = {}
    for item, number, until in steps:
        if number is None:
            due.pop(item, None)
        else:
            due[item] = number
            agenda.note(item, number)
        expected = sorted((at, each) for each, at in due.items() if at <= until)
        found = [(at, each) for at, items in taken(agenda, due, until) for each in items]
        assert found == expected
        for _, each in found:
            del due[each]


def test_no_key_cannot_be_looked_up() -> None:
    with pytest.raises(StateError, match=r"^No key is current here"):
        hash(NO_KEY)
