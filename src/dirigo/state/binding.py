"""Owns the tie between an object whose class declares states and the StateSet that holds them.

Must not know what the object does or which instance of a function it is.
"""

from dirigo.state.declaration import BOUND_ATTRIBUTE, Declaration
from dirigo.state.errors import StateError
from dirigo.state.keyed.state_set import KeyedStateSet
from dirigo.state.state_set import StateSet


def declared_states(cls: type) -> dict[str, Declaration]:
    """The states that `cls` declares or inherits, base classes first, each class in the order of its source.

    A subclass that reuses a name overrides the state, or removes it when the new attribute is no declaration.
    """
    found: dict[str, Declaration] = {}
    for base in reversed(cls.__mro__):
        for name, attribute in vars(base).items():
            if isinstance(attribute, Declaration):
                found[name] = attribute
            else:
                found.pop(name, None)
    return found


def bind(obj: object, state_set: StateSet | KeyedStateSet) -> None:
    """Let the declared states of `obj` live in `state_set`, in place of the one bound before."""
    class_name = type(obj).__name__
    for name in declared_states(type(obj)):
        if name not in state_set:
            raise StateError(
                f"The StateSet lacks state '{name}' of {class_name}; make it with StateSet(declared_states({class_name}))."
            )
    try:
        object.__setattr__(obj, BOUND_ATTRIBUTE, state_set)  # past a frozen dataclass, whose fields it leaves alone
    except AttributeError:
        raise StateError(
            f"A {class_name} cannot be bound because it has no room for attributes; "
            f"add '{BOUND_ATTRIBUTE}' to its __slots__."
        ) from None
