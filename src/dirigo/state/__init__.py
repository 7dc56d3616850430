"""Partial states of a function that runs as several instances at once.

Owns what a state is and how partial states move and combine; must not know actors, messages, workers or time.

A function has a home instance (the lessor) and, under load, further instances (the lessees).  Each updates a partial
state of its own, starting from the identity.  At a barrier the partial state of a lessee is moved to the lessor and
combined there; the lessee goes on from the identity.

    class Streak:
        best = ValueState(int, default=0, combine=max)
        seen = ListState(str)
        wins = MapState(str, int, default=0, combine=add)

        def handle(self, player: str, streak: int) -> None:
            self.best.add(streak)
            self.wins.add(player, 1)

What a combine function has to promise, so that the result does not depend on which instance handled which message:

- associative: combine(combine(a, b), c) == combine(a, combine(b, c));
- commutative: combine(a, b) == combine(b, a), because partial states arrive in any order;
- identity: combine(default, x) == x, because every lessee starts from the default.  A sum with default 100 would
  count the 100 once per lessee.  This one is checked, at the declaration and on the first values; a breach raises
  CombineError.

A state without a combine function is for functions that never run as several instances (ordered ones).

set(), clear() and del act on the partial state of one instance only; they undo nothing that another instance holds.
Only changes made by add(), append() and extend() are independent of how messages are spread.

A state declared with replicated=True can be read at a lessee too: the lessor's values are installed there as a base,
and read() combines the base with the partial state.  The base is as old as the last view, and never travels back.

Where states belong to keys, a KeyedStateSet holds the values of many keys, and its cells show those of the current one
(CurrentKey.key). All that is said above goes for each key on its own.
"""

from dirigo.state.binding import bind, declared_states
from dirigo.state.captures import Pickled, capture_of, copied, pickled, restored
from dirigo.state.combine import add, maximum, merge_average, minimum, union
from dirigo.state.declaration import Declaration
from dirigo.state.errors import CombineError, StateError
from dirigo.state.keyed.agenda import Agenda
from dirigo.state.keyed.cells import KeyedListCell, KeyedMapCell, KeyedValueCell
from dirigo.state.keyed.current_key import NO_KEY, CurrentKey
from dirigo.state.keyed.lifetime import Lifetime
from dirigo.state.keyed.state_set import KeyedCapture, KeyedPartial, KeyedStateSet
from dirigo.state.list_state import ListCell, ListState
from dirigo.state.map_state import MapCell, MapState
from dirigo.state.partial import Partial, StateView
from dirigo.state.state_set import StateSet
from dirigo.state.value_state import ValueCell, ValueState
from dirigo.state.values.missing import MISSING

__all__ = [
    "MISSING",
    "NO_KEY",
    "Agenda",
    "CombineError",
    "CurrentKey",
    "Declaration",
    "KeyedCapture",
    "KeyedListCell",
    "KeyedMapCell",
    "KeyedPartial",
    "KeyedStateSet",
    "KeyedValueCell",
    "Lifetime",
    "ListCell",
    "ListState",
    "MapCell",
    "MapState",
    "Partial",
    "Pickled",
    "StateError",
    "StateSet",
    "StateView",
    "ValueCell",
    "ValueState",
    "add",
    "bind",
    "capture_of",
    "copied",
    "declared_states",
    "maximum",
    "merge_average",
    "minimum",
    "pickled",
    "restored",
    "union",
]
