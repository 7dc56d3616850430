"""Owns the errors of the state package; must not know any state, value or caller."""

from dirigo.errors import DirigoError


class StateError(DirigoError):
    """A state is declared, bound or used in a way that cannot work; the message says what to do instead."""


class CombineError(StateError):
    """A combine function and its default break the identity law, so partial states would not add up."""
