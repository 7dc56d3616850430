"""States declared as class attributes: on the class the declaration, on a bound object the cell."""

from dataclasses import dataclass

import pytest

from dirigo.state import ListState, MapState, StateError, StateSet, ValueState, add, bind, declared_states


class Streak:
    best = ValueState(int, default=0, combine=max)
    seen = ListState(str)
    wins = MapState(str, int, default=0, combine=add)

    def handle(self, player: str, streak: int) -> None:
        self.best.add(streak)
        self.seen.append(player)
        self.wins.add(player, 1)


class LongStreak(Streak):
    longest = ListState(int)
    best = ValueState(int, default=0, combine=add)


class NoWins(LongStreak):
    wins = None  # type: ignore[assignment]


def test_a_bound_object_works_on_its_own_state_set() -> None:
    first, second = Streak(), Streak()
    sets = [StateSet(declared_states(Streak)) for _ in range(2)]
    bind(first, sets[0])
    bind(second, sets[1])
    first.handle("ann", 3)
    second.handle("bob", 5)
    assert first.best is sets[0].cell("best")
    assert (first.best.get(), second.best.get()) == (3, 5)
    sets[0].merge(sets[1].take())
    assert first.best.get() == 5
    assert first.wins.read() == {"ann": 1, "bob": 1}
    assert second.seen.read() == []


def test_binding_sets_one_attribute_and_can_be_renewed() -> None:
    streak = Streak()
    bind(streak, StateSet(declared_states(Streak)))
    streak.best.add(1)
    bind(streak, StateSet(declared_states(Streak)))
    assert len(vars(streak)) == 1
    assert streak.best.get() == 0


def test_the_class_gives_the_declaration() -> None:
    assert Streak.best is declared_states(Streak)["best"]
    assert isinstance(Streak.best, ValueState)


def test_an_unbound_object_says_what_to_do() -> None:
    with pytest.raises(StateError, match=r"State 'best' of this Streak .* call bind\(obj, state_set\)"):
        _ = Streak().best


def test_assigning_a_state_is_refused_instead_of_hiding_it() -> None:
    streak = Streak()
    bind(streak, StateSet(declared_states(Streak)))
    with pytest.raises(StateError, match=r"self\.best\.set\("):
        streak.best = 5  # type: ignore[assignment]
    with pytest.raises(StateError, match=r"self\.seen\.append\("):
        streak.seen = []  # type: ignore[assignment]


def test_declared_states_follow_the_source_order_base_classes_first() -> None:
    assert list(declared_states(Streak)) == ["best", "seen", "wins"]
    assert list(declared_states(LongStreak)) == ["best", "seen", "wins", "longest"]
    assert declared_states(LongStreak)["best"] is LongStreak.best
    assert list(declared_states(NoWins)) == ["best", "seen", "longest"]
    assert declared_states(int) == {}


def test_one_declaration_cannot_be_two_states() -> None:
    # Before Python 3.12 an error in __set_name__ arrives as the cause of a RuntimeError.
    with pytest.raises((StateError, RuntimeError)) as caught:

        class Twice:
            first = second = ListState(int)

    error = caught.value if isinstance(caught.value, StateError) else caught.value.__cause__
    assert "write a declaration of its own" in str(error)


def test_bind_refuses_a_state_set_of_other_states() -> None:
    with pytest.raises(StateError, match=r"lacks state 'best' of Streak.*declared_states\(Streak\)"):
        bind(Streak(), StateSet({"seen": ListState(str)}))


def test_frozen_objects_can_be_bound_and_slotted_ones_say_why_not() -> None:
    @dataclass(frozen=True)
    class Frozen:
        limit: int
        items = ListState(int)

    class Slotted:
        __slots__ = ()
        items = ListState(int)

    frozen = Frozen(3)
    bind(frozen, StateSet(declared_states(Frozen)))
    frozen.items.append(1)
    assert list(frozen.items) == [1]
    assert frozen == Frozen(3)
    with pytest.raises(StateError, match="to its __slots__"):
        bind(Slotted(), StateSet(declared_states(Slotted)))
