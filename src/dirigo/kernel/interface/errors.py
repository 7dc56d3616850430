"""What the kernel raises when somebody breaks a rule: who, which rule, what happened, and the story of the actor."""

from __future__ import annotations

from collections.abc import Iterable

from dirigo.errors import DirigoError


class GraphError(DirigoError):
    """A job's graph cannot be run."""


class PolicyError(DirigoError):
    """A scheduling strategy asked for something that the protocol does not allow."""


class ProtocolError(DirigoError):
    """An instance received or did something that the protocol excludes."""

    def __init__(self, rule: str, who: str, what: str, story: Iterable[str] = ()) -> None:
        self.rule = rule
        self.who = who
        self.what = what
        self.story = tuple(story)
        told = "".join(f"\n    {line}" for line in self.story)
        super().__init__(f"{who} broke the rule '{rule}': {what}" + (f"\n  its story so far:{told}" if told else ""))

    def __reduce__(self) -> tuple[type[ProtocolError], tuple[str, str, str, tuple[str, ...]]]:
        return ProtocolError, (self.rule, self.who, self.what, self.story)
