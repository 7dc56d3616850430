"""Lets strategies spread the window functions of an experiment's flow only: as the paper does, and the simulated jobs.

A flow's other operators would be spread as well otherwise. Then each end of a window also is a barrier over all instances of
every map, and each of these instances asks for channels of its own.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from dirigo.kernel import Address, SchedulingContext, WorkerId, operator_of
from dirigo.scheduling.lessees import LesseesAllowed
from dirigo_lab.experiments.window_jobs.job_flow import WINDOWS


class _Spreading(Protocol):
    """A strategy that leases actors to workers next to their homes."""

    span: LesseesAllowed


class _WindowsSpan(LesseesAllowed):
    """Of window functions; all others stay at home."""

    __slots__ = ()

    def of(self, context: SchedulingContext, actor: Address) -> tuple[WorkerId, ...]:
        return super().of(context, actor) if operator_of(actor) == WINDOWS else ()


_S = TypeVar("_S", bound=_Spreading)


def spreading_windows(strategy: _S) -> _S:
    """The same strategy, with a narrower span."""
    strategy.span = _WindowsSpan(strategy.span.most)
    return strategy
