"""Copies of a worker, and a canonical form by which equal workers are recognised.

Handlers of the kernel are pure, so the explorer keeps each distinct worker once, as bytes, and calls a handler on a copy.
Two workers are equal if their canonical forms are: lists are compared as multisets (the order in which a queue was filled
is no difference, because every order of taking is explored), deques as sequences.
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
from dirigo.kernel.party import Party
from dirigo.state import StateSet

# What differs without making a difference (the story), and what is the same for all copies.
_LEFT_OUT = frozenset(
    {"address", "context", "critical_acked", "function", "host", "party", "spec", "spec_downstreams", "story", "worker"}
)


class Copier:
    """Makes copies that share the given objects (directory, specs, chooser ...) instead of copying them."""

    def __init__(self, shared: list[Any]) -> None:
        self._shared = shared
        self._keys = {id(item): key for key, item in enumerate(shared)}

    def dump(self, worker: Worker) -> bytes:
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        pickler.keys = self._keys
        pickler.dump(worker)
        return buffer.getvalue()

    def load(self, dumped: bytes) -> Worker:
        unpickler = _Unpickler(io.BytesIO(dumped))
        unpickler.shared = self._shared
        worker: Worker = unpickler.load()
        return worker


class _Pickler(pickle.Pickler):
    keys: dict[int, int]

    def persistent_id(self, obj: Any) -> int | None:
        return self.keys.get(id(obj))


class _Unpickler(pickle.Unpickler):
    shared: list[Any]

    def persistent_load(self, pid: int) -> Any:
        return self.shared[pid]


def canonical(worker: Worker) -> Hashable:
    """The canonical form of everything at a worker that can influence what it does."""
    parties = tuple((address, _freeze(party)) for address, party in sorted(worker.parties.items()))
    return parties, _freeze(getattr(worker.strategy, "kept", ())), worker.running


def _freeze(value: Any) -> Hashable:
    if value is None or isinstance(value, (int, str, float, Enum, msgspec.Struct)):
        return value
    if isinstance(value, (tuple, deque)):
        return tuple(map(_freeze, value))
    if isinstance(value, list):
        return tuple(sorted(map(_freeze, value), key=repr))
    if isinstance(value, dict):
        return tuple(sorted(((_freeze(key), _freeze(item)) for key, item in value.items()), key=repr))
    if isinstance(value, (set, frozenset)):
        return tuple(sorted(value, key=repr))
    if isinstance(value, StateSet):
        return value.freeze()
    return _freeze_object(value)


_SLOTS: dict[type, tuple[str, ...]] = {}


def _freeze_object(value: Any) -> Hashable:
    kind = type(value)
    slots = _SLOTS.get(kind)
    if slots is None:
        names = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
        if not names and not isinstance(value, Party):
            raise TypeError(f"no canonical form for {kind.__name__}: {value!r}")
        slots = _SLOTS[kind] = tuple(name for name in names if name not in _LEFT_OUT)
    return (kind.__name__, *(_freeze(getattr(value, name)) for name in slots))
