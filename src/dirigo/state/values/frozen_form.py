"""Owns the canonical hashable form of any value; must not know about states or who compares the forms.

Equal values have equal forms, and the forms hold no reference to anything mutable.  Containers are tagged with
their type, so that a list never looks like a tuple.  Sets and maps are sorted by repr, so that the repr of a form
is the same in every process too (provided that objects in them have a repr by value, as dataclasses do).  An
object that is not hashable by value is taken apart the way pickle does it.
"""

import types
from collections.abc import Hashable, Mapping, Set
from typing import Any

NAN_FORM = ("nan",)
REFERENCE_TYPES = (type, types.FunctionType, types.BuiltinFunctionType)


def freeze_value(value: object) -> Hashable:
    """The canonical hashable form of `value`."""
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return value
    if isinstance(value, float):
        return value if value == value else NAN_FORM  # only NaN differs from itself
    if isinstance(value, (list, tuple)):
        return (_type_name(value), tuple(freeze_value(item) for item in value))
    if isinstance(value, Set):
        return (_type_name(value), tuple(sorted(map(freeze_value, value), key=repr)))
    if isinstance(value, Mapping):
        return (_type_name(value), freeze_pairs(value))
    return _freeze_object(value)


def freeze_pairs(pairs: Mapping[Any, Any]) -> tuple[tuple[Hashable, Hashable], ...]:
    """The (key, value) pairs of a mapping in an order that does not depend on insertion."""
    return tuple(sorted(((freeze_value(key), freeze_value(value)) for key, value in pairs.items()), key=repr))


def _freeze_object(value: object) -> Hashable:
    if isinstance(value, REFERENCE_TYPES):
        return ("reference", value.__module__, value.__qualname__)
    if _is_hashable_by_value(value):
        return value
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return (_type_name(value), reduced)
    # The last two parts of a reduction are iterators (list items, map items); they have to be read to be compared.
    parts = [list(part) if position in (3, 4) and part is not None else part for position, part in enumerate(reduced)]
    return (_type_name(value), tuple(freeze_value(part) for part in parts))


def _is_hashable_by_value(value: object) -> bool:
    kind = type(value)
    if kind.__eq__ is object.__eq__ or kind.__hash__ is object.__hash__:
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _type_name(value: object) -> str:
    return type(value).__qualname__
