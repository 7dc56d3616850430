"""Encoded partial states come back exactly: equal, and with the same types all the way down."""

import enum
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.state import ListState, MapState, Partial, StateError, StateSet, ValueState, add

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]))  # lone surrogates included
    | st.binary()
)
HASHABLES = SCALARS | st.tuples(SCALARS, SCALARS) | st.frozensets(SCALARS, max_size=3)
VALUES = st.recursive(
    HASHABLES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(HASHABLES, max_size=3)
        | st.dictionaries(HASHABLES, inner, max_size=3)
    ),
    max_leaves=5,
)


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int
    tags: list[str]


def any_states() -> StateSet:
    return StateSet(
        {
            "value": ValueState(object, default=None, combine=lambda left, right: right if left is None else left),
            "items": ListState(object),
            "map": MapState(object, object, combine=lambda left, _: left),
        }
    )


def typed(value: Any) -> Any:
    """A form in which 1, 1.0 and True differ, and so do all types of containers."""
    kind = type(value)
    if isinstance(value, dict):
        return (kind, sorted(((typed(key), typed(item)) for key, item in value.items()), key=repr))
    if isinstance(value, (set, frozenset)):
        return (kind, sorted(map(typed, value), key=repr))
    if isinstance(value, (list, tuple, deque)):
        return (kind, [typed(item) for item in value])
    return (kind, repr(value))


def assert_round_trip(partial: Partial) -> None:
    states = any_states()
    data = states.encode(partial)
    assert isinstance(data, bytes)
    assert typed(dict(states.decode(data).values)) == typed(dict(partial.values))


@given(value=VALUES)
def test_any_value_round_trips(value: Any) -> None:
    assert_round_trip(Partial({"value": value}))


@given(items=st.lists(VALUES, max_size=5), entries=st.dictionaries(HASHABLES, VALUES, max_size=5))
def test_any_list_and_map_round_trip(items: list[Any], entries: dict[Any, Any]) -> None:
    assert_round_trip(Partial({"items": items, "map": entries}))


@given(items=st.lists(SCALARS), entries=st.dictionaries(SCALARS, SCALARS))
def test_plain_lists_and_maps_round_trip(items: list[Any], entries: dict[Any, Any]) -> None:
    assert_round_trip(Partial({"items": items, "map": entries}))


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Level.LOW,
        Point(1, ["a"]),
        Counter("aab"),
        defaultdict(int, a=1),
        deque([1, 2]),
        2**64,
        -(2**63) - 1,
        2**63,
        bytearray(b"x"),
        complex(1, 2),
        "lone surrogate \ud800",
    ],
    ids=ascii,
)
def test_values_that_msgpack_would_change_keep_their_types(value: Any) -> None:
    assert_round_trip(Partial({"value": value, "items": [value], "map": {"k": value}}))


def test_an_empty_partial_round_trips() -> None:
    assert_round_trip(Partial({}))


def test_plain_states_are_plain_msgpack() -> None:
    partial = Partial({"value": 1.5, "items": ["a", None], "map": {"k": 2}})
    assert msgspec.msgpack.decode(any_states().encode(partial)) == partial.values


def test_foreign_bytes_and_unknown_states_are_refused() -> None:
    states = any_states()
    with pytest.raises(StateError, match="do not hold encoded states"):
        states.decode(b"\xc1 not msgpack")
    other = StateSet({"other": ValueState(int, default=0, combine=add)})
    with pytest.raises(StateError, match="'other', which is not declared"):
        states.decode(other.encode(Partial({"other": 1})))
