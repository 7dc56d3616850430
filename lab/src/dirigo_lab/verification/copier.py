"""Copies of a worker, and a canonical form by which equal workers are recognised.

Handlers of the kernel are pure, so the explorer keeps each distinct worker once, as bytes, and calls a handler on a copy.
Two workers are equal if their canonical forms are: deques are compared as sequences, lists as multisets. The order in which
a list was filled is no difference: of what is kept to run every order of taking is explored, and what is released all at
once only gets its ids in another order.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Hashable
from enum import Enum
from typing import Any

import msgspec

from dirigo.kernel import Worker
from dirigo.kernel.participant import Participant
from dirigo.state import StateSet

# What differs without making a difference (the story), and what is the same for all copies.
_LEFT_OUT = frozenset(
    {
        "address",
        "context",
        "critical_acked",
        "function",
        "host",
        "participant",
        "spec",
        "spec_downstreams",
        "story",
        "undrained",  # follows from the counters; only how much of it was already found out differs
        "worker",
    }
)


class Copier:
    """Makes copies that share the given objects (directory, specs, chooser ...) instead of copying them."""

    def __init__(self, shared: list[Any]) -> None:
        self._token = len(_SHARED)
        _SHARED.append(shared)
        self._keys = {id(item): key for key, item in enumerate(shared)}
        # A table by type is looked up in C; asking for a persistent id would be a Python call per object.
        self._table = {type(item): self._refer for item in shared}

    def _refer(self, item: Any) -> tuple[Any, tuple[int, int]]:
        return _fetch, (self._token, self._keys[id(item)])

    def dump(self, worker: Worker) -> bytes:
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = self._table
        pickler.dump(worker)
        return buffer.getvalue()

    def load(self, dumped: bytes) -> Worker:
        worker: Worker = pickle.loads(dumped)
        return worker


_SHARED: list[list[Any]] = []


def _fetch(token: int, key: int) -> Any:
    return _SHARED[token][key]


def canonical(worker: Worker) -> Hashable:
    """The canonical form of everything at a worker that can influence what it does."""
    participants = tuple((address, _freeze(participant)) for address, participant in sorted(worker.participants.items()))
    return participants, _freeze(getattr(worker.strategy, "kept", ())), worker.running


def _freeze(value: Any) -> Hashable:
    if value is None or isinstance(value, (int, str, float, Enum, msgspec.Struct)):
        return value
    if isinstance(value, (tuple, deque)):
        return tuple(map(_freeze, value))
    if isinstance(value, list):
        frozen = tuple(map(_freeze, value))
        return frozen if len(frozen) < 2 else tuple(sorted(frozen, key=repr))
    if isinstance(value, dict):
        return tuple((key, _freeze(value[key])) for key in sorted(value))
    if isinstance(value, (set, frozenset)):
        return tuple(sorted(value))
    if isinstance(value, StateSet):
        return value.freeze()
    return _freeze_object(value)


_SLOTS: dict[type, tuple[str, ...]] = {}


def _freeze_object(value: Any) -> Hashable:
    kind = type(value)
    slots = _SLOTS.get(kind)
    if slots is None:
        names = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
        if not names and not isinstance(value, Participant):
            raise TypeError(f"no canonical form for {kind.__name__}: {value!r}")
        slots = _SLOTS[kind] = tuple(name for name in names if name not in _LEFT_OUT)
    return (kind.__name__, *(_freeze(getattr(value, name)) for name in slots))
