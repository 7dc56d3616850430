"""Owns the checks that a combine function fits its default; must not know cells or who calls.

The law is `combine(default, x) == x`: every lessee starts from the default, so whatever the default adds would be
counted once per lessee.  That combine is also associative and commutative cannot be checked cheaply; it is the
user's promise.
"""

import math
import reprlib
from collections.abc import Callable
from typing import Any

from dirigo.state.errors import CombineError
from dirigo.state.values.copies import private_copy
from dirigo.state.values.equality import agree

ADVICE = (
    "give a default that changes nothing when combined, because every worker starts from it "
    "(a sum with default 100 would count it once per worker)"
)


def uncombinable(one: Any, other: Any) -> Any:
    """Stands for the combine function of a state that has none: such a state must stay with one instance."""
    raise CombineError(
        f"A state without a combine function cannot put {reprlib.repr(one)} and {reprlib.repr(other)} together: "
        f"declare it with combine=..., or, in a function that is ordered, use get() and set()."
    )


def combining(kind: str, combine: Callable[[Any, Any], Any] | None) -> Callable[[Any, Any], Any]:
    """The function that a state combines with, whether or not it was given one."""
    if combine is None:
        return uncombinable
    if not callable(combine):
        raise CombineError(f"A {kind} needs a function of two values to combine with, not {reprlib.repr(combine)}.")
    return combine


def check_default(kind: str, combine: Callable[[Any, Any], Any], default: Any) -> None:
    """Refuse, at declaration, a default that changes even itself."""
    if combine is uncombinable:
        return
    result = _combine_with_default(f"A {kind}", combine, default, default)
    if not agree(result, default):
        raise CombineError(
            f"A {kind} cannot have the default {reprlib.repr(default)}, because combining it with itself gives "
            f"{reprlib.repr(result)}: {ADVICE}."
        )


def check_identity(name: str, combine: Callable[[Any, Any], Any], default: Any, value: Any) -> None:
    """Refuse a default that changes `value`, a value that the state `name` really holds."""
    if combine is uncombinable:
        return
    if isinstance(value, float) and math.isnan(value):
        return  # NaN compares false with everything, so it proves nothing (max(0.0, nan) is 0.0)
    result = _combine_with_default(f"State '{name}'", combine, default, value)
    if not agree(result, value):
        raise CombineError(
            f"State '{name}' does not add up, because combining its default {reprlib.repr(default)} with "
            f"{reprlib.repr(value)} gives {reprlib.repr(result)}: {ADVICE}."
        )


def _combine_with_default(subject: str, combine: Callable[[Any, Any], Any], default: Any, value: Any) -> Any:
    # Copies, because a combine function is free to change its arguments in place.
    try:
        return combine(private_copy(default), private_copy(value))
    except Exception as error:
        raise CombineError(
            f"{subject} cannot combine its default {reprlib.repr(default)} with {reprlib.repr(value)} "
            f"({type(error).__name__}: {error}): make combine accept the default."
        ) from error
