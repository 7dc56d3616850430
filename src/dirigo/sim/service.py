"""How long a message runs: a model per function, or the time that the function really takes.

Owns the models only; slow and frozen workers are the cluster's, which stretches what a model says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from dirigo.kernel import Address, RunnableMessage

ServiceTime = Callable[[RunnableMessage, Random], float]  # in seconds; any function will do


@dataclass(frozen=True)
class Measured:
    """The time that user code takes on this machine, times a factor. Such a run does not repeat exactly."""

    factor: float = 1.0
    more: ServiceTime | None = None  # that is added to it


def constant(seconds: float) -> ServiceTime:
    """Every message takes the same."""
    return lambda _message, _rng: seconds


def per_row(fixed_s: float, row_s: float, rows: Callable[[Any], int] = len) -> ServiceTime:
    """A cost per message and a cost per row (or per byte: ``rows`` measures a payload). A critical message has no rows."""

    def seconds(message: RunnableMessage, _: Random) -> float:
        return fixed_s if message.critical else fixed_s + row_s * rows(message.payload)

    return seconds


class ServiceTimes:
    """The model of every function: one by default, others by address. A number stands for a constant."""

    __slots__ = ("_default", "_functions")

    def __init__(
        self,
        default: ServiceTime | Measured | float = 0.0001,
        functions: Mapping[Address, ServiceTime | Measured | float] | None = None,
    ) -> None:
        self._default = _as_model(default)
        self._functions = {address: _as_model(each) for address, each in (functions or {}).items()}

    def model(self, address: Address) -> ServiceTime | Measured:
        return self._functions.get(address, self._default)

    def with_more(self, more: Mapping[Address, ServiceTime]) -> ServiceTimes:
        """The same, but some functions take longer by what a second model says."""
        if not more:
            return self
        longer = {address: _sum(self.model(address), each) for address, each in more.items()}
        return ServiceTimes(self._default, {**self._functions, **longer})


def _sum(model: ServiceTime | Measured, more: ServiceTime) -> ServiceTime | Measured:
    if isinstance(model, Measured):
        return replace(model, more=more if model.more is None else _both(model.more, more))
    return _both(model, more)


def _both(one: ServiceTime, other: ServiceTime) -> ServiceTime:
    return lambda message, rng: one(message, rng) + other(message, rng)


def _as_model(model: ServiceTime | Measured | float) -> ServiceTime | Measured:
    return model if isinstance(model, Measured) or callable(model) else constant(model)
