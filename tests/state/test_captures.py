"""What a snapshot keeps of values: nothing that happens later touches it, and it can be read without the user's code."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from dirigo.state import (
    CurrentKey,
    KeyedStateSet,
    Lifetime,
    ListState,
    MapState,
    Pickled,
    ValueState,
    add,
    capture_of,
    pickled,
    restored,
)


@dataclass
class Mine:
    """A user's."""

    items: list[int]


class Number(int):
    """More than its value."""


PLAIN: list[Any] = [
    None,
    7,
    "text",
    (1, ("a", None)),
    frozenset({1, 2}),
    [1, 2, (3, 4)],
    {1, "a", (2, 3)},
    {"a": 1, ("b", 2): 2.5},
    {"a": [1, 2], "b": []},
    {"a": {1: 2}, "b": {}},
    {1: {2, 3}},
    {("key", "name"): (5, None)},
]
PICKLED: list[Any] = [
    Mine([1]),
    [Mine([1])],
    [[1]],
    {"a": Mine([1])},
    {"a": {"b": [1]}},
    {"a": ([1],)},
    {"a": Number(1)},
    {"a": Decimal("1.5")},
    bytearray(b"abc"),
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_values_are_kept_without_pickling(value: Any) -> None:
    kept = capture_of(value)
    assert kept == value
    assert type(kept) is type(value)
    assert restored(kept) == value


@pytest.mark.parametrize("value", PICKLED, ids=lambda value: type(value).__name__)
def test_what_may_have_code_of_a_users_is_pickled_at_once(value: Any) -> None:
    kept = capture_of(value)
    assert type(kept) is Pickled
    assert restored(kept) == value


def change(value: Any) -> None:
    """Everything in it that can be changed."""
    if isinstance(value, dict):
        for each in value.values():
            change(each)
        value["new"] = "new"
    elif isinstance(value, list):
        for each in value:
            change(each)
        value.append("new")
    elif isinstance(value, set):
        value.add("new")
    elif isinstance(value, Mine):
        value.items.append(99)
    elif isinstance(value, bytearray):
        value += b"new"


@pytest.mark.parametrize("value", [*PLAIN, *PICKLED], ids=lambda value: type(value).__name__)
def test_later_changes_of_the_value_and_of_what_was_restored_do_not_touch_it(value: Any) -> None:
    value = pickle.loads(pickle.dumps(value))
    before = repr(value)
    kept = capture_of(value)
    change(value)
    found = restored(kept)
    assert repr(found) == before
    change(found)
    assert repr(restored(kept)) == before


def test_what_a_script_defines_comes_along() -> None:
    script = (
        "import sys; from dirigo.state import capture_of\n"
        "class Mine:\n    def __init__(self): self.number = 7\n"
        "sys.stdout.buffer.write(capture_of([Mine()]).content)"
    )
    content = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=120).stdout
    (mine,) = Pickled(content).open()
    assert mine.number == 7


def test_what_cannot_be_pickled_raises() -> None:
    with pytest.raises(TypeError, match="generator"):
        pickled(number for number in range(3))


# --- states by key -----------------------------------------------------------------------------------------------------


def keyed() -> KeyedStateSet:
    declarations = {
        "count": ValueState(int, default=0, combine=add),
        "items": ListState(int),
        "entries": MapState(str, int, combine=add),
        "mine": ValueState(object, default=None),
        "brief": ValueState(int, default=0, combine=add),
    }
    return KeyedStateSet(declarations, CurrentKey(axes=2), {"brief": Lifetime(0, 10, is_exact=True)})


def filled() -> KeyedStateSet:
    states = keyed()
    for number, key in enumerate(["a", ("b", 1), "a"]):
        states.current.key, states.current.now[0] = key, 5 * number
        states.cell("count").add(number + 1)
        states.cell("items").append(number)
        states.cell("entries").add(str(number), 1)
        states.cell("mine").set(Mine([number]))
        states.cell("brief").add(1)
    return states


def test_states_by_key_come_back_as_they_were() -> None:
    states = filled()
    kept = states.capture()
    before = repr(states.peek())
    states.current.key = "a"
    states.cell("items").append(99)
    states.cell("mine").get().items.append(99)
    states.current.now[0] = 12
    states.cell("brief").add(1)
    again = keyed()
    again.restore(kept)
    assert repr(again.peek()) == before
    again.expire(0, 15)  # the second one was written at 5
    assert again.peek().values["brief"] == {"a": 2}


def test_the_newest_of_all_numbers_is_kept_also_of_a_key_that_is_forgotten() -> None:
    states = keyed()
    states.current.key, states.current.now[0] = "a", 30
    states.cell("brief").add(1)
    states.cell("brief").clear()
    again = keyed()
    again.restore(states.capture())
    assert again.newest(0) == 30


def test_nothing_is_kept_as_nothing() -> None:
    assert keyed().capture() is None
    states = keyed()
    states.restore(None)
    assert states.is_identity()
