"""Owns how long a key's value lives after it was last written; must not know what the numbers mean that say when."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from dirigo.state.keyed.agenda import Agenda


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value is gone once its key was not written for this long, on an axis whose numbers only the caller understands."""

    axis: int
    length: int
    is_exact: bool  # whoever comes that much later finds it gone; otherwise it goes when it is asked to

    def has_passed(self, written: int, now: int) -> bool:
        return written + self.length <= now


class WrittenAt:
    """When each key of one state was last written. What has expired is found without looking at all keys."""

    __slots__ = ("_agenda", "_lifetime", "newest", "numbers")

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime
        self._agenda: Agenda[Hashable, int] = Agenda()
        self.numbers: dict[Hashable, int] = {}
        self.newest: int | None = None

    def note(self, key: Hashable, number: int) -> None:
        before = self.numbers.get(key)
        if before is None:
            self._agenda.note(key, number + self._lifetime.length)
        elif number <= before:
            return
        self.numbers[key] = number
        if self.newest is None or number > self.newest:
            self.newest = number

    def forget(self, key: Hashable) -> None:
        self.numbers.pop(key, None)

    def has_expired(self, key: Hashable, now: int) -> bool:
        written = self.numbers.get(key)
        return written is not None and self._lifetime.has_passed(written, now)

    def take_expired(self, now: int) -> list[Hashable]:
        expired: list[Hashable] = []
        while (taken := self._agenda.take_next(now, self._due)) is not None:
            expired += taken[1]
        for key in expired:
            del self.numbers[key]
        return expired

    def _due(self, key: Hashable) -> int | None:
        written = self.numbers.get(key)
        return None if written is None else written + self._lifetime.length

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def restore(self, numbers: dict[Hashable, int], newest: int) -> None:
        """Be as it was when it had these; ``newest`` may be of a key that is forgotten."""
        self.merge(numbers)
        self.newest = newest

    def take(self) -> dict[Hashable, int]:
        numbers, self.numbers = self.numbers, {}
        self._agenda.clear()
        return numbers

    def merge(self, numbers: Mapping[Hashable, int]) -> None:
        for key, number in numbers.items():
            self.note(key, number)
