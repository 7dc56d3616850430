"""An actor that only passes rows on: where streams come together, and before steps that need an actor of their own."""

from __future__ import annotations

from dirigo.flow.operators.operator import Operator


class PassThrough(Operator):
    """Stateless."""

    emits_per_row = True
    runs_alone = False

    def __init__(self, name: str, like: object, kind: str, description: str = "") -> None:
        super().__init__(name, like.schema, like.time)  # type: ignore[attr-defined]
        self.kind = kind
        self._description = description or kind

    def describe(self) -> str:
        return self._description
