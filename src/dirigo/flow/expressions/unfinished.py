"""The mark of what is not an expression yet, by which it is told apart from a plain value."""

from __future__ import annotations


class Unfinished:
    """What is to become an expression, but is none yet; its text says how to go on."""

    __slots__ = ()
