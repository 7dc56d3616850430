"""Owns how a value is kept so that no later change can touch it; must not know who keeps it, or where.

A snapshot keeps what it finds, and goes on at once: another thread writes it down, while the state changes. So what is kept
shares nothing with the state that could change, and writing it down runs no code of a user's.
"""

import pickle
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import cloudpickle

from dirigo.state.values.scalars import SCALAR_TYPES

_IMMUTABLE_CONTAINERS = frozenset({tuple, frozenset})
_DEEPEST = 4  # tuples in tuples: a key of several columns, its name, what is due
_OF_A_SCRIPT = b"__main__"


@dataclass(frozen=True, slots=True)
class Pickled:
    """A value as bytes. They are trusted: whoever opens them runs what they say."""

    content: bytes

    def open(self) -> Any:
        return pickle.loads(self.content)


def pickled(value: Any) -> Pickled:
    """A value as bytes, now: this may run user code. Raises whatever pickling it raises."""
    try:
        content = pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):  # of a class that came with the job and cannot be imported
        return Pickled(cloudpickle.dumps(value, protocol=5))
    if _OF_A_SCRIPT in content:  # another process has another script: what is defined there has to come along
        return Pickled(cloudpickle.dumps(value, protocol=5))
    return Pickled(content)


def capture_of(value: Any) -> Any:
    """A value that nobody can change any more: itself, a copy of a plain container, or pickled.

    The short cuts matter as they do for ``private_copy``: keys with numbers are copied at the speed of C.
    """
    kind = type(value)
    if kind in SCALAR_TYPES:
        return value
    if kind in _IMMUTABLE_CONTAINERS and are_immutable(value):
        return value
    if kind in (list, set) and are_immutable(value):
        return value.copy()
    if kind is dict:
        copied = _copied(value)
        if copied is not None:
            return copied
    return pickled(value)


def restored(captured: Any) -> Any:
    """The value that was kept. It belongs to the caller: what was kept may be restored again. May run user code."""
    return captured.open() if type(captured) is Pickled else capture_of(captured)


def copied(value: Any) -> Any:
    """The same value, now: what becomes of the one that was given changes nothing in it."""
    return restored(capture_of(value))


def are_immutable(values: Collection[Any], levels: int = _DEEPEST) -> bool:
    """Whether all values are scalars, or tuples and frozen sets of them, exactly."""
    kinds = set(map(type, values)) - SCALAR_TYPES
    if not kinds:
        return True
    if not levels or not kinds <= _IMMUTABLE_CONTAINERS:
        return False
    return are_immutable([*chain.from_iterable(_containers(values))], levels - 1)


def _containers(values: Iterable[Any]) -> Iterable[Iterable[Any]]:
    return (value for value in values if type(value) in _IMMUTABLE_CONTAINERS)


def _copied(value: dict[Any, Any]) -> dict[Any, Any] | None:
    """A copy of a dict of immutable values, or of flat containers of them; None if it holds anything else."""
    items = value.values()
    if not are_immutable(value.keys()):
        return None
    if are_immutable(items):
        return value.copy()
    kinds = set(map(type, items))
    if not kinds <= {list, set, dict} or not are_immutable([*chain.from_iterable(items)]):
        return None
    if dict in kinds:
        inner = [*chain.from_iterable(item.values() for item in items if type(item) is dict)]
        if not are_immutable(inner):
            return None
    return {key: item.copy() for key, item in value.items()}
