"""Owns the mark for "no value given"; must not know where it is used.

None cannot serve as the mark because None is an ordinary value of a state.
"""

import enum


class Missing(enum.Enum):
    """The type of MISSING; an enum member stays one and the same object through copy and pickle."""

    MISSING = "missing"


MISSING = Missing.MISSING
