"""What a mutant is, and the list of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Make = Callable[[Callable[..., Any]], Callable[..., Any]]  # from the function as it is to the mistaken one


@dataclass(frozen=True)
class Mutant:
    """One mistake: where it is, what it is, and the worlds most likely to show it."""

    name: str
    mistake: str
    owner: Any
    attribute: str
    make: Make
    worlds: tuple[str, ...]
    needs_crash: bool = False  # only random runs with crashes can show it

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The kernel with this mistake in it."""
        original = getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, self.make(original))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, original)


MUTANTS: list[Mutant] = []


def mutant(
    name: str, mistake: str, owner: Any, attribute: str, *worlds: str, needs_crash: bool = False
) -> Callable[[Make], Make]:
    """Register what makes a mistaken ``owner.attribute`` out of the right one."""

    def register(make: Make) -> Make:
        MUTANTS.append(Mutant(name, mistake, owner, attribute, make, worlds, needs_crash))
        return make

    return register


def mutant_named(name: str) -> Mutant:
    """One of the mutants; a name that is none gives an error that lists them."""
    for each in MUTANTS:
        if each.name == name:
            return each
    raise KeyError(f"there is no mutant {name!r}; there are: {', '.join(each.name for each in MUTANTS)}")


def without_sends(kind: type, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what it sends of one kind thrown away."""

    def mistaken(self: Any, *args: Any) -> Any:
        before = len(self.host.outgoing)
        result = original(self, *args)
        kept = [message for message in self.host.outgoing[before:] if not isinstance(message, kind)]
        self.host.outgoing[before:] = kept
        return result

    return mistaken
