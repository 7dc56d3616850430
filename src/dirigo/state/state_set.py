"""Owns the states of one instance: moving them out, combining them in, showing and installing views.

Must not know which instance it is, when barriers happen, or how bytes travel.
"""

from collections.abc import Hashable, Mapping
from typing import Any

from dirigo.state.contents import Holding
from dirigo.state.declaration import Declaration
from dirigo.state.errors import StateError
from dirigo.state.partial import NamedValues, Partial, StateView
from dirigo.state.values.codec import decode_values, encode_values, is_plain
from dirigo.state.values.missing import MISSING
from dirigo.state.values.sizes import estimated_size


class StateSet:
    """The partial states of one instance of a function, each at its identity at first.

    Pickling a StateSet pickles its declarations too, and so needs combine functions that pickle finds by name; for a
    copy within the process use clone(), and to send the contents use take() and encode().
    """

    __slots__ = ("_declarations", "_holdings", "cells")

    def __init__(self, declarations: Mapping[str, Declaration]) -> None:
        self._declarations = dict(declarations)
        self._install_holdings({name: Holding(name, item.identity()) for name, item in declarations.items()})

    def _install_holdings(self, holdings: dict[str, Holding]) -> None:
        self._holdings = holdings
        self.cells = {name: self._declarations[name].new_cell(holding) for name, holding in holdings.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._holdings

    def cell(self, name: str) -> Any:
        """The cell of a state; the same object for the life of this set."""
        try:
            return self.cells[name]
        except KeyError:
            raise StateError(f"There is no state '{name}' here; declare it or use one of {self._names()}.") from None

    # --- moving partial states ---

    def take(self) -> Partial:
        """Move all partial values out; afterwards every state is at its identity.  The base stays."""
        taken = {}
        for name, declaration in self._declarations.items():
            holding = self._holdings[name]
            if not declaration.is_identity(holding.own):
                taken[name] = holding.own
                holding.own = declaration.identity()
        return Partial(taken)

    def merge(self, partial: Partial) -> None:
        """Combine a partial state into the own one; the partial is neither changed nor shared.

        A partial that is refused (CombineError, StateError) has changed nothing.  An error that a combine function
        itself raises may leave some states merged and others not.
        """
        self._refuse_unknown(partial)
        for name, value in partial.values.items():
            self._declarations[name].check(self._holdings[name], value)
        for name, value in partial.values.items():
            self._declarations[name].merge(self._holdings[name], value)

    def is_identity(self) -> bool:
        """Whether take() would move nothing; the base does not count."""
        return all(item.is_identity(self._holdings[name].own) for name, item in self._declarations.items())

    def size_bytes(self) -> int:
        """About how many bytes encode(take()) would have, without doing either.

        The cost is bounded per state whatever its size: containers are measured on a few items (see values/sizes.py), so
        the estimate is good for uniform contents only.  States at their identity count nothing.
        """
        return sum(
            estimated_size(name) + estimated_size(self._holdings[name].own)
            for name, declaration in self._declarations.items()
            if not declaration.is_identity(self._holdings[name].own)
        )

    def values(self) -> list[Any]:
        """All that is held here, in no form but its own: partial values and bases, to be looked at only."""
        held = [value for holding in self._holdings.values() for value in (holding.own, holding.base)]
        return [value for value in held if value is not MISSING]

    def is_plain(self) -> bool:
        """Whether no value here can have code of a user's: all are scalars, or flat lists and maps of them."""
        return all(
            is_plain(self._holdings[name].own) and (default is MISSING or is_plain(default))
            for name, declaration in self._declarations.items()
            for default in (getattr(declaration, "default", MISSING),)
        )

    # --- replicated states ---

    def is_replicated(self) -> bool:
        """Whether view() shows anything."""
        return any(declaration.replicated for declaration in self._declarations.values())

    def view(self) -> StateView | None:
        """A copy of the own values of the replicated states (the whole, at a lessor), or None without any."""
        values = {
            name: declaration.copy(self._holdings[name].own)
            for name, declaration in self._declarations.items()
            if declaration.replicated
        }
        return StateView(values) if values else None

    def install_view(self, view: StateView | None) -> None:
        """Make `view` the base that replicated states read, in place of the former one; None removes the base.

        The values are not copied: a base is never changed, reads copy from it.  So one view may serve many lessees.
        """
        values = {} if view is None else view.values
        if view is not None:
            self._refuse_unknown(view)
        for name in values:
            if not self._declarations[name].replicated:
                raise StateError(f"State '{name}' cannot have a base; declare it with replicated=True.")
        for name, holding in self._holdings.items():
            holding.base = values.get(name, MISSING)

    # --- bytes ---

    def encode(self, partial: Partial) -> bytes:
        """The bytes of a partial state."""
        self._refuse_unknown(partial)
        return encode_values(partial.values)

    def decode(self, data: bytes) -> Partial:
        """The partial state in bytes that encode() made.  They are trusted: see codec.py."""
        partial = Partial(decode_values(data))
        self._refuse_unknown(partial)
        return partial

    def encode_view(self, view: StateView) -> bytes:
        """The bytes of a view."""
        self._refuse_unknown(view)
        return encode_values(view.values)

    def decode_view(self, data: bytes) -> StateView:
        """The view in bytes that encode_view() made.  They are trusted: see codec.py."""
        view = StateView(decode_values(data))
        self._refuse_unknown(view)
        return view

    # --- copies and comparison ---

    def clone(self) -> "StateSet":
        """An independent copy that shares only the declarations (and the base, which nobody changes)."""
        twin = StateSet(self._declarations)
        twin._install_holdings(
            {
                name: Holding(name, self._declarations[name].copy(held.own), held.base, held.law_checks_left)
                for name, held in self._holdings.items()
            }
        )
        return twin

    def freeze(self) -> Hashable:
        """Canonical hashable form: (name, own value, base) per state by name; base is () or a tuple of one value.

        A list state appears as the tuple of its items in their order; a caller who means a multiset sorts it.
        """
        return tuple(
            (name, declaration.freeze(held.own), () if held.base is MISSING else (declaration.freeze(held.base),))
            for name, declaration in sorted(self._declarations.items())
            for held in (self._holdings[name],)
        )

    def __getstate__(self) -> tuple[dict[str, Declaration], dict[str, Holding]]:
        return (self._declarations, self._holdings)

    def __setstate__(self, state: tuple[dict[str, Declaration], dict[str, Holding]]) -> None:
        self._declarations, holdings = state
        self._install_holdings(holdings)

    def __repr__(self) -> str:
        return f"StateSet({ {name: holding.own for name, holding in self._holdings.items()} })"

    def _names(self) -> str:
        return ", ".join(f"'{name}'" for name in self._holdings) or "none"

    def _refuse_unknown(self, named: NamedValues) -> None:
        for name in named.values:
            if name not in self._holdings:
                raise StateError(
                    f"A value came for state '{name}', which is not declared here; run the same declarations "
                    f"at all instances (here: {self._names()})."
                )
